//! The fields of `struct tcp_info` (linux/tcp.h) that are shown.

use sallyport_tcp_window::Sample;

/// Where fields stand, in bytes from the beginning. The kernel only ever appends fields.
mod at {
    pub(super) const SEGMENT: usize = 16;
    pub(super) const RECEIVE_SSTHRESH: usize = 64;
    pub(super) const RTT: usize = 68;
    pub(super) const CONGESTION_WINDOW: usize = 80;
    pub(super) const RECEIVE_RTT: usize = 92;
    pub(super) const SENT_AGAIN: usize = 100;
    pub(super) const ACKNOWLEDGED: usize = 120;
    pub(super) const RECEIVED: usize = 128;
    pub(super) const SENT_WITH_DATA: usize = 156;
    pub(super) const BUSY: usize = 168;
    pub(super) const HELD_BY_PEER: usize = 176;
    pub(super) const HELD_BY_SEND_BUFFER: usize = 184;
    pub(super) const OUT_OF_ORDER: usize = 224;
    pub(super) const PEER_WINDOW: usize = 228;
    pub(super) const RECEIVE_WINDOW: usize = 232;
}

/// Adds what `bytes` tell. Older kernels tell less: what they leave out stays as it is.
pub(crate) fn read(bytes: &[u8], sample: &mut Sample) {
    let short = |at: usize| bytes.get(at..)?.first_chunk().map(|four| u32::from_ne_bytes(*four));
    let long = |at: usize| bytes.get(at..)?.first_chunk().map(|eight| u64::from_ne_bytes(*eight));
    sample.receive_ssthresh_bytes = short(at::RECEIVE_SSTHRESH).unwrap_or_default();
    sample.rtt_us = short(at::RTT).unwrap_or_default();
    let segments = short(at::CONGESTION_WINDOW).unwrap_or_default();
    sample.congestion_window_bytes = u64::from(segments) * u64::from(short(at::SEGMENT).unwrap_or_default());
    sample.receive_rtt_us = short(at::RECEIVE_RTT).unwrap_or_default();
    sample.sent_again_segments = short(at::SENT_AGAIN).unwrap_or_default();
    sample.acknowledged_bytes = long(at::ACKNOWLEDGED).unwrap_or_default();
    sample.received_bytes = long(at::RECEIVED).unwrap_or_default();
    sample.sent_segments = short(at::SENT_WITH_DATA).unwrap_or_default();
    sample.busy_us = long(at::BUSY).unwrap_or_default();
    sample.held_by_peer_us = long(at::HELD_BY_PEER).unwrap_or_default();
    sample.held_by_send_buffer_us = long(at::HELD_BY_SEND_BUFFER).unwrap_or_default();
    sample.out_of_order_segments = short(at::OUT_OF_ORDER).unwrap_or_default();
    sample.peer_window_bytes = short(at::PEER_WINDOW);
    sample.receive_window_bytes = short(at::RECEIVE_WINDOW);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_answer_of_an_older_kernel_leaves_windows_unknown() {
        let mut bytes = [0; 236];
        bytes[at::RECEIVE_WINDOW..].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[at::BUSY..at::BUSY + 8].copy_from_slice(&9_u64.to_ne_bytes());
        let of = |length: usize| {
            let mut sample = Sample::default();
            read(&bytes[..length], &mut sample);
            sample
        };
        assert_eq!((of(236).receive_window_bytes, of(236).busy_us), (Some(7), 9));
        assert_eq!((of(232).receive_window_bytes, of(232).peer_window_bytes), (None, Some(0)));
        assert_eq!((of(170).busy_us, of(0)), (0, Sample::default()));
    }
}
