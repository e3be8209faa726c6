//! ScriptedServer: speaks the protocol over a real socket, and does to each request what a test says.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use log_core::codec;
use log_core::protocol::frame::{
    FRAME_HEAD_BYTES, ReplyHead, RequestHead, encode_refusal, encode_reply,
};
use log_core::protocol::hello::{HelloReplyV1, HelloV1};
use log_core::protocol::{Call, FrameReader, Refusal};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The least that the server's frames may be: what tests send is far smaller.
const FRAME_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// What becomes of a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// It is answered with this body.
    Reply(Bytes),
    /// It is answered twice with this body.
    ReplyTwice(Bytes),
    /// It is refused.
    Refuse(Refusal),
    /// It is not answered.
    Ignore,
    /// It is not answered, and nothing more of its connection is read until this is told.
    Stall(Arc<Notify>),
    /// The connection is closed.
    Cut,
    /// Half of the answer is sent, then the connection is closed.
    CutInReply(Bytes),
}

/// What a script is told of a request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
    pub(crate) kind: u16,
    pub(crate) body: Bytes,
}

type Script = dyn FnMut(Asked) -> Act + Send;

/// A server on a port of its own. Hellos it answers itself.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl ScriptedServer {
    /// Starts one that does what `script` says.
    pub(crate) async fn start(script: impl FnMut(Asked) -> Act + Send + 'static) -> ScriptedServer {
        ScriptedServer::limited(64, script).await
    }

    /// Starts one that takes so many produces at a time.
    pub(crate) async fn limited(
        produces: u32,
        script: impl FnMut(Asked) -> Act + Send + 'static,
    ) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(script));
        let task = tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, (connection, produces), Arc::clone(&script)));
            }
        });
        ScriptedServer { address, task }
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A reply with this structure as its body.
pub(crate) fn reply<T: Serialize>(answer: &T) -> Act {
    Act::Reply(Bytes::from(codec::encode(answer)))
}

async fn serve(
    mut stream: TcpStream,
    (connection, produces): (usize, u32),
    script: Arc<Mutex<Script>>,
) {
    let mut reader = FrameReader::new(FRAME_LIMIT_BYTES);
    loop {
        while let Some(frame) = reader.take().unwrap() {
            let head = RequestHead::decode(&frame.head);
            let act = if head.kind == HelloV1::KIND.number() {
                reply(&hello(produces))
            } else {
                (script.lock())(Asked { connection, kind: head.kind, body: frame.body })
            };
            if !carry_out(&mut stream, act, head.correlation).await {
                return;
            }
        }
        if !matches!(stream.read_buf(reader.room()).await, Ok(1..)) {
            return;
        }
    }
}

/// Whether the connection goes on.
async fn carry_out(stream: &mut TcpStream, act: Act, correlation: u32) -> bool {
    let accepted = |body: &Bytes| encode_reply(ReplyHead { code: 0, correlation }, body);
    let bytes = match &act {
        Act::Reply(body) => accepted(body),
        Act::ReplyTwice(body) => accepted(body).repeat(2),
        Act::Refuse(refusal) => encode_refusal(refusal, correlation),
        Act::Ignore => return true,
        Act::Stall(told) => {
            told.notified().await;
            return true;
        }
        Act::Cut => return false,
        Act::CutInReply(body) => accepted(body)[..FRAME_HEAD_BYTES + body.len() / 2].to_vec(),
    };
    let written = stream.write_all(&bytes).await.is_ok();
    written && !matches!(act, Act::CutInReply(_))
}

fn hello(produce_in_flight_max: u32) -> HelloReplyV1 {
    HelloReplyV1 {
        server_version: "scripted".to_owned(),
        boot_id: 7,
        server_time: 0,
        versions: Vec::new(),
        frame_max_bytes: u32::try_from(FRAME_LIMIT_BYTES).unwrap(),
        produce_in_flight_max,
        fetch_in_flight_max: 8,
        authentication: Vec::new(),
    }
}
