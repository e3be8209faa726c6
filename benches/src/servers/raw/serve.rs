//! Serve: the other process's side: it copies, answers, or passes on what comes.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use rustix::event::epoll;

use super::{ACK, BRINGS, LEN_BYTES, WANTS, frame_len};
use crate::Outcome;
use crate::controls::BareLog;
use crate::wire::Wire;

/// What is written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Listens on the loopback and says where.
fn listen(out: &mut dyn Write) -> Outcome<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    Ok(listener)
}

fn accept(listener: &TcpListener) -> Outcome<Wire> {
    Wire::of(listener.accept()?.0)
}

/// Copies the frames that come into the map of a fresh file, populated ahead, and answers each;
/// writes all of them to who wants them. One connection after the other, until it is killed.
///
/// # Errors
/// If the file can't be made, there is no space, or nobody can connect.
pub fn serve_store(out: &mut dyn Write, path: &Path) -> Outcome<()> {
    let listener = listen(out)?;
    let mut log = BareLog::create_prepared(path)?;
    loop {
        let mut wire = accept(&listener)?;
        wire.receive()?;
        let kind = wire.received()[0];
        wire.take(1);
        match kind {
            BRINGS => take_frames(&mut wire, &mut log)?,
            WANTS => {
                for bytes in log.bytes().chunks(WRITE_BYTES) {
                    wire.send(bytes)?;
                }
            }
            other => return Err(format!("there are no connections of kind {other}").into()),
        }
    }
}

fn take_frames(wire: &mut Wire, log: &mut BareLog) -> Outcome<()> {
    let mut acks = Vec::new();
    loop {
        while let Some(len) = frame_len(wire.received())
            && let Some(frame) = wire.received().get(LEN_BYTES..LEN_BYTES + len)
        {
            log.store(frame)?;
            wire.take(LEN_BYTES + len);
            acks.extend_from_slice(&ACK);
        }
        if !acks.is_empty() {
            wire.send(&acks)?;
            acks.clear();
        }
        if wire.receive().is_err() {
            // It has brought everything.
            return Ok(());
        }
    }
}

/// Answers each frame of that length on so many connections, on one thread, until one is closed.
///
/// # Errors
/// If nobody connects, or can be asked.
pub fn serve_exchange(out: &mut dyn Write, connections: usize, frame_bytes: usize) -> Outcome<()> {
    let listener = listen(out)?;
    let accepted = (0..connections).map(|_| accept(&listener));
    let mut wires = accepted.collect::<Outcome<Vec<_>>>()?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (wire, number) in wires.iter().zip(0..) {
        epoll::add(&poll, wire, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    let mut events = Vec::with_capacity(connections);
    loop {
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let wire = &mut wires[usize::try_from(event.data.u64())?];
            if wire.receive().is_err() {
                return Ok(());
            }
            while wire.received().len() >= frame_bytes {
                wire.take(frame_bytes);
                wire.send(&ACK)?;
            }
        }
    }
}

/// Passes frames of that length from the first connection on to the second, and answers them,
/// until one is closed.
///
/// # Errors
/// If nobody connects.
pub fn serve_relay(out: &mut dyn Write, frame_bytes: usize) -> Outcome<()> {
    let listener = listen(out)?;
    let (mut from, mut to) = (accept(&listener)?, accept(&listener)?);
    while from.receive().is_ok() {
        let frames = from.received().len() / frame_bytes;
        let sent = to.send(&from.received()[..frames * frame_bytes]);
        from.take(frames * frame_bytes);
        if sent.and_then(|()| from.send(&ACK.repeat(frames))).is_err() {
            break;
        }
    }
    Ok(())
}
