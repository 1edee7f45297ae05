//! The body of the fuzz target `inspect_stream`: relayed bytes of both directions, whole and with losses.

use std::time::Instant;

use bytes::Bytes;
use sallyport_inspect::{
    Bounds, From, Inspector, Now, StreamEvent, StreamOpen, StreamProtocol, answer, diff, export, view,
};

/// The bytes are commands: a byte of what, a byte of how many, and the bytes.
pub(crate) fn inspect_stream(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let protocol = if first & 1 == 1 { StreamProtocol::Http2 } else { StreamProtocol::Http1 };
    let bounds = Bounds { exchanges: 8, bytes: 1 << 20 };
    let mut inspector = Inspector::new(bounds);
    let now = Now { wall_ms: 0, instant: Instant::now() };
    let open = StreamOpen { protocol, source: Default::default(), replay_of: None };
    inspector.handle(StreamEvent::Opened(1, open), now);
    let mut offsets = [0_u64; 2];
    while let [what, count, more @ ..] = rest {
        let from = if what & 1 == 1 { From::Service } else { From::Client };
        let offset = &mut offsets[usize::from(from == From::Service)];
        let (taken, left) = more.split_at(more.len().min(usize::from(*count)));
        rest = left;
        match what >> 1 & 7 {
            7 => *offset += u64::from(*count),
            6 => inspector.handle(StreamEvent::Ended(1, from), now),
            _ => {
                let data = Bytes::copy_from_slice(taken);
                inspector.handle(StreamEvent::Bytes { stream: 1, from, offset: *offset, data }, now);
                *offset += taken.len() as u64;
                assert!(inspector.unwanted_until(1, from) >= *offset || inspector.store().is_empty() || *offset > 0);
            }
        }
    }
    inspector.handle(StreamEvent::Closed(1, None), now);
    let store = inspector.store();
    assert!(store.len() <= bounds.exchanges && (store.len() <= 1 || store.bytes() <= bounds.bytes));
    let kept: Vec<_> = store.newest().cloned().collect();
    for exchange in &kept {
        assert!(exchange.duration_us.is_some(), "nothing runs on a closed stream");
        drop(serde_json::to_string(&answer::Details::from(exchange)).unwrap());
        drop(view(&exchange.request));
        exchange.response.iter().for_each(|response| drop(view(response)));
        let command = export::curl(exchange);
        assert!(!command.contains('\0'));
    }
    drop(serde_json::to_string(&export::har(&kept, "0")).unwrap());
    if let [one, other, ..] = &kept[..] {
        drop(diff(one, other));
    }
}
