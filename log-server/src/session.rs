//! Session: what a connection does with the frames that it has read; no sockets in here.

use std::net::SocketAddr;
use std::sync::Arc;

use log_core::Fault;
use log_core::protocol::frame::{Frame, RequestHead, encode_refusal};
use log_core::protocol::hello::HelloV1;
use log_core::protocol::{
    CONTROL_LIMIT_BYTES, Call, ErrorCode, Outgoing, Refusal, RequestKind, decode_body,
    encode_answer,
};
use tokio::task::JoinSet;

use crate::context::{Context, Peer};
use crate::handlers::{self, hello};
use crate::outbox::{Outbox, Waits};
use crate::partitions::Partitions;

/// One for each connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) context: Arc<Context>,
    pub(crate) outbox: Arc<Outbox>,
    /// Replies that were made where their request was read.
    pub(crate) out: Outgoing,
    pub(crate) partitions: Partitions,
    /// What answers later; it ends with the connection.
    pub(crate) tasks: JoinSet<()>,
    /// Known once hello was said.
    pub(crate) peer: Option<Arc<Peer>>,
    id: u64,
    address: SocketAddr,
}

impl Session {
    pub(crate) fn new(
        context: Arc<Context>,
        outbox: Arc<Outbox>,
        id: u64,
        address: SocketAddr,
    ) -> Session {
        Session {
            context,
            outbox,
            out: Outgoing::new(),
            partitions: Partitions::default(),
            tasks: JoinSet::new(),
            peer: None,
            id,
            address,
        }
    }

    /// Whether nothing more should be taken in before something has gone out.
    pub(crate) fn is_full(&self) -> bool {
        let config = &self.context.config;
        self.outgoing_bytes() > config.outgoing_max_bytes
            || self.outbox.waiting_bytes() > config.produce_waiting_max_bytes
    }

    /// How many bytes wait for the peer to take them.
    pub(crate) fn outgoing_bytes(&self) -> usize {
        self.out.len() + self.outbox.reply_bytes()
    }

    /// Handles a request.
    pub(crate) fn handle(&mut self, frame: Frame<&[u8]>) {
        let RequestHead { kind: number, version, correlation } = RequestHead::decode(&frame.head);
        let kind = RequestKind::from_number(number);
        self.context.metrics.request(kind);
        let Some((kind, (min, max))) = kind.and_then(|kind| Some((kind, hello::versions(kind)?)))
        else {
            let why = format!("this server does not know requests of kind {number}");
            return self.refuse(&Refusal::new(ErrorCode::UnsupportedRequest, why), correlation);
        };
        if version < min || version > max {
            let why =
                format!("this server knows versions {min} to {max} of {kind:?}, and not {version}");
            let refusal = Refusal::new(ErrorCode::UnsupportedVersion, why);
            let refusal = refusal.with_numbers(&[u64::from(min), u64::from(max)]);
            return self.refuse(&refusal, correlation);
        }
        if kind == RequestKind::Hello {
            return self.hello(correlation, frame.body);
        }
        if self.peer.is_none() {
            let refusal = Refusal::new(ErrorCode::HelloRequired, "say hello first");
            return self.refuse(&refusal, correlation);
        }
        if self.context.shutdown.is_draining() {
            let refusal = Refusal::new(ErrorCode::Stopping, "the server is stopping");
            return self.refuse(&refusal, correlation);
        }
        match kind {
            RequestKind::Produce => handlers::produce::produce(self, correlation, frame.body),
            RequestKind::Fetch => handlers::fetch::fetch(self, correlation, frame.body),
            kind => self.control(kind, correlation, frame.body),
        }
    }

    fn hello(&mut self, correlation: u32, body: &[u8]) {
        let hello: HelloV1 = match decode_body(body) {
            Ok(hello) => hello,
            Err(fault) => return self.refuse_malformed(&fault, correlation),
        };
        if self.peer.is_some() {
            let refusal = Refusal::new(ErrorCode::Malformed, "hello was said already");
            return self.refuse(&refusal, correlation);
        }
        match hello::hello(&self.context, &hello) {
            Ok(reply) => {
                let (id, address) = (self.id, self.address);
                tracing::debug!(
                    connection = id, %address, client = %hello.client_id.escape_debug(),
                    software = %hello.software.escape_debug(), "hello"
                );
                self.peer = Some(Arc::new(Peer { id, client_id: hello.client_id, address }));
                self.out.put(&encode_answer(&reply, correlation));
            }
            Err(refusal) => self.refuse(&refusal, correlation),
        }
    }

    fn control(&mut self, kind: RequestKind, correlation: u32, body: &[u8]) {
        use handlers::{groups, metrics, offsets, resolve, topics};
        match kind {
            RequestKind::Metrics => self.call(correlation, body, metrics::metrics),
            RequestKind::ResolveOffset => self.call(correlation, body, resolve::resolve),
            RequestKind::ListTopics => self.call(correlation, body, topics::list),
            RequestKind::DescribeTopic => self.call(correlation, body, topics::describe),
            RequestKind::CreateTopic => self.call(correlation, body, topics::create),
            RequestKind::DeleteTopic => self.call(correlation, body, topics::delete),
            RequestKind::AlterTopic => self.call(correlation, body, topics::alter),
            RequestKind::AddPartitions => self.call(correlation, body, topics::add_partitions),
            RequestKind::JoinGroup => self.call(correlation, body, groups::join),
            RequestKind::Heartbeat => self.call(correlation, body, groups::heartbeat),
            RequestKind::LeaveGroup => self.call(correlation, body, groups::leave),
            RequestKind::ReleasePartition => self.call(correlation, body, groups::release),
            RequestKind::DescribeGroup => self.call(correlation, body, groups::describe),
            RequestKind::ListGroups => self.call(correlation, body, groups::list),
            RequestKind::DeleteGroup => self.call(correlation, body, groups::delete),
            RequestKind::CommitOffsets => self.call(correlation, body, offsets::commit),
            RequestKind::FetchOffsets => self.call(correlation, body, offsets::fetch_offsets),
            RequestKind::ResetOffsets => self.call(correlation, body, offsets::reset),
            RequestKind::TrimPartition => self.call(correlation, body, topics::trim),
            _ => {
                let why = format!("this server does not answer {kind:?}");
                self.refuse(&Refusal::new(ErrorCode::UnsupportedRequest, why), correlation);
            }
        }
    }

    /// Has a control request answered by a task of its own: one that waits holds up nothing.
    fn call<C: Call + 'static>(
        &mut self,
        correlation: u32,
        body: &[u8],
        handler: impl AsyncFnOnce(&Context, &Peer, C) -> Result<C::Reply, Refusal> + 'static,
    ) {
        let request: C = match decode_body(body) {
            Ok(request) => request,
            Err(fault) => return self.refuse_malformed(&fault, correlation),
        };
        let Some(peer) = self.peer.clone() else { return };
        let limit = self.context.config.control_in_flight_max;
        let Some(mut reply) = self.outbox.begin(Waits::Control, correlation, limit) else {
            let why = format!("{limit} requests of this connection wait already");
            return self.refuse(&Refusal::new(ErrorCode::LimitReached, why), correlation);
        };
        reply.hold_bytes(body.len());
        let context = Arc::clone(&self.context);
        self.tasks.spawn_local(async move {
            let answer = tokio::select! {
                biased;
                answer = handler(&context, &peer, request) => answer,
                // It waits for a change on behalf of a member that is about to go.
                () = reply.peer_done(), if C::KIND == RequestKind::Heartbeat => return,
            };
            match answer {
                Ok(answer) => {
                    let frame = encode_answer(&answer, correlation);
                    if frame.len() <= CONTROL_LIMIT_BYTES {
                        return reply.send(|out| out.put(&frame));
                    }
                    let why = format!("the reply of {} bytes is over the limit", frame.len());
                    let numbers = [frame.len() as u64, CONTROL_LIMIT_BYTES as u64];
                    let refusal = Refusal::new(ErrorCode::TooLarge, why);
                    reply.refuse(&refusal.with_numbers(&numbers));
                }
                Err(refusal) => reply.refuse(&refusal),
            }
        });
    }

    /// Refuses a request at once.
    pub(crate) fn refuse(&mut self, refusal: &Refusal, correlation: u32) {
        self.context.metrics.refusal(refusal.code);
        self.out.put(&encode_refusal(refusal, correlation));
    }

    /// Refuses a request whose body can't be read.
    pub(crate) fn refuse_malformed(&mut self, fault: &Fault, correlation: u32) {
        let refusal = Refusal::new(ErrorCode::Malformed, format!("malformed request: {fault}"));
        self.refuse(&refusal, correlation);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(peer) = &self.peer {
            self.context.coordinator.connection_closed(peer);
        }
    }
}
