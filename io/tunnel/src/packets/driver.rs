//! Drives one packet carrier: many packets in one write and in one read.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sallyport_wire::{
    Carrier as CarrierKind, FrameHeader, FrameType, NetworkJoined, Refusal, Side, Violation, frame::HEADER_BYTES,
    packets::Parcels,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::{Next, PacketHandler, PacketQueue};
use crate::{Carrier, driver::broken};

/// The least room for each read, in bytes: a few full TLS records.
const READ_BYTES: usize = 65_536;
/// Time without a successful write after which a carrier is given up.
const STALL_TIME: Duration = Duration::from_secs(10);
/// Timeout of closing.
const FAREWELL_TIME: Duration = Duration::from_secs(1);
/// How many probes in a row may go unanswered.
const MISSED_LIMIT: u32 = 3;

/// How a packet carrier ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketsEnd {
    /// The edge ends it, and says why.
    Refused(Refusal),
    /// This side ends it.
    Ended,
    /// The connection is lost; the reason is a sentence.
    Lost(String),
}

/// Carries packets on this carrier, after JOIN_NETWORK and its answer, until one side ends. A peer that is silent for
/// `keepalive` gets a PING. After three unanswered ones the carrier is lost.
pub async fn carry_packets(
    carrier: impl Carrier,
    queue: &PacketQueue,
    side: Side,
    keepalive: Duration,
    handler: &mut (impl PacketHandler + ?Sized),
) -> PacketsEnd {
    let (mut reader, mut writer) = tokio::io::split(carrier);
    let has_heard = AtomicBool::new(true);
    let end = tokio::select! {
        biased;
        end = write(&mut writer, queue) => end,
        end = read(&mut reader, queue, side, &has_heard, handler) => end,
        () = probe(queue, keepalive, &has_heard) => {
            PacketsEnd::Lost("the peer has not answered for too long".to_owned())
        }
    };
    let _ = timeout(FAREWELL_TIME, writer.shutdown()).await;
    end
}

/// Sends what waits, until this side ends or the connection is lost.
async fn write(writer: &mut (impl AsyncWrite + Unpin), queue: &PacketQueue) -> PacketsEnd {
    let mut out = Vec::new();
    loop {
        let next = queue.take(&mut out);
        if matches!(next, Next::Wait) {
            // An idle carrier holds no buffer.
            out = Vec::new();
            queue.changed.notified().await;
            continue;
        }
        match timeout(STALL_TIME, send(writer, &out)).await {
            Err(_) => return PacketsEnd::Lost("the peer has accepted no data for too long".to_owned()),
            Ok(Err(error)) => return PacketsEnd::Lost(broken(&error)),
            Ok(Ok(())) if matches!(next, Next::End) => return PacketsEnd::Ended,
            Ok(Ok(())) => out.clear(),
        }
    }
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Takes what comes, until the peer ends or the connection is lost.
async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    queue: &PacketQueue,
    side: Side,
    has_heard: &AtomicBool,
    handler: &mut (impl PacketHandler + ?Sized),
) -> PacketsEnd {
    let mut buffer = Vec::new();
    loop {
        buffer.reserve(READ_BYTES);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return PacketsEnd::Lost("the peer closed the connection".to_owned()),
            Ok(_) => has_heard.store(true, Ordering::Relaxed),
            Err(error) => return PacketsEnd::Lost(broken(&error)),
        }
        let mut taken = 0;
        loop {
            match frame(&buffer[taken..]) {
                Ok(None) => break,
                Ok(Some((kind, payload))) => {
                    taken += HEADER_BYTES + payload.len();
                    match handle(kind, payload, queue, side, handler) {
                        Ok(None) => {}
                        Ok(Some(refusal)) => return PacketsEnd::Refused(refusal),
                        Err(violation) => return PacketsEnd::Lost(violation.to_string()),
                    }
                }
                Err(violation) => return PacketsEnd::Lost(violation.to_string()),
            }
        }
        buffer.drain(..taken);
        if buffer.is_empty() {
            buffer = Vec::new();
        }
    }
}

/// The first frame, if all of it has come.
fn frame(bytes: &[u8]) -> Result<Option<(FrameType, &[u8])>, Violation> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = FrameHeader::decode(*header, CarrierKind::Packets)?;
    Ok(rest.get(..header.len as usize).map(|payload| (header.kind, payload)))
}

/// Takes a frame. Returns the refusal that ends the carrier.
fn handle(
    kind: FrameType,
    payload: &[u8],
    queue: &PacketQueue,
    side: Side,
    handler: &mut (impl PacketHandler + ?Sized),
) -> Result<Option<Refusal>, Violation> {
    let out_of_place = Violation::OutOfPlace { kind, place: "on a packet carrier" };
    if !kind.may_come_from(side.other()) {
        return Err(out_of_place);
    }
    match kind {
        FrameType::Packets => handler.packets(Parcels::of(payload))?,
        FrameType::Ping => queue.probe(FrameType::Pong, payload.try_into().unwrap_or_default()),
        FrameType::Pong => {}
        FrameType::NetworkJoined => handler.place(NetworkJoined::decode(payload)?),
        FrameType::Refused => return Refusal::decode(payload).map(Some),
        _ => return Err(out_of_place),
    }
    Ok(None)
}

/// Resolves when the peer has been silent for too long.
async fn probe(queue: &PacketQueue, keepalive: Duration, has_heard: &AtomicBool) {
    let mut missed = 0;
    while missed <= MISSED_LIMIT {
        tokio::time::sleep(keepalive).await;
        if has_heard.swap(false, Ordering::Relaxed) {
            missed = 0;
        } else {
            missed += 1;
            queue.probe(FrameType::Ping, [0; 8]);
        }
    }
}
