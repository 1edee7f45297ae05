//! Trains: many TCP segments that the kernel hands over as one packet with a virtio header (TSO). A train is cut where
//! a wire loses one of its segments. Pure.

use std::{iter, ops::Range};

use tun_rs::{VIRTIO_NET_HDR_LEN, VirtioNetHdr};

use super::sum::{checksum, low_16, sum_16};

/// The flag of a header whose transport checksum is unfinished, and the kinds of trains (virtio 1.2, 5.1.6).
const NEEDS_CHECKSUM: u8 = 1;
const NO_TRAIN: u8 = 0;
const TCP_OVER_IPV4: u8 = 1;
/// What Ethernet adds to a packet on a wire: preamble, header, checksum and gap, in bytes.
const ETHERNET_BYTES: usize = 38;
/// Fields of IPv4 (RFC 791) and TCP (RFC 9293), in bytes from the beginning of their header.
const LENGTH_AT: usize = 2;
const IDENTIFICATION_AT: usize = 4;
const IP_CHECKSUM_AT: usize = 10;
const ADDRESSES: Range<usize> = 12..20;
const SEQUENCE_AT: usize = 4;
const OFFSET_AT: usize = 12;
const FLAGS_AT: usize = 13;
const TCP_CHECKSUM_AT: usize = 16;
/// The flags of the last segment (FIN, PSH) and of the first (CWR).
const LAST_FLAGS: u8 = 0x09;
const FIRST_FLAGS: u8 = 0x80;

/// A packet of a TUN device with its virtio header. What is no train of TCP over IPv4 counts as one segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Train<'a> {
    frame: &'a [u8],
    /// Where the data of a train is, in bytes from the beginning of the packet, and of how many bytes a segment is.
    cut: Option<Cut>,
}

#[derive(Debug, Clone, Copy)]
struct Cut {
    header: VirtioNetHdr,
    tcp_at: usize,
    data_at: usize,
    segment: usize,
}

impl<'a> Train<'a> {
    /// Reads the headers. None: the frame is too short.
    pub(crate) fn parse(frame: &'a [u8]) -> Option<Self> {
        let header = VirtioNetHdr::decode(frame).ok()?;
        let packet = frame.get(VIRTIO_NET_HDR_LEN..)?;
        let (tcp_at, segment) = (usize::from(header.csum_start), usize::from(header.gso_size));
        let is_train = header.gso_type == TCP_OVER_IPV4 && header.flags & NEEDS_CHECKSUM != 0 && segment > 0;
        let data_at = packet.get(tcp_at + OFFSET_AT).map(|offset| tcp_at + usize::from(offset >> 4) * 4);
        let cut = data_at.filter(|data_at| is_train && tcp_at >= ADDRESSES.end && *data_at < packet.len());
        Some(Self { frame, cut: cut.map(|data_at| Cut { header, tcp_at, data_at, segment }) })
    }

    /// The sizes of its segments on a wire, in bytes.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let bytes = self.frame.len() - VIRTIO_NET_HDR_LEN;
        let Some(Cut { data_at, segment, .. }) = self.cut else { return vec![bytes + ETHERNET_BYTES] };
        let data = bytes - data_at;
        let sizes = (0..data).step_by(segment).map(|at| data_at + segment.min(data - at) + ETHERNET_BYTES);
        sizes.collect()
    }

    /// The frames that are left of it where these segments arrive.
    pub(crate) fn left(&self, arrives: &[bool]) -> Vec<Vec<u8>> {
        match self.cut {
            _ if arrives.iter().all(|arrives| *arrives) => vec![self.frame.to_vec()],
            None => Vec::new(),
            Some(cut) => runs(arrives).map(|segments| self.part(&cut, segments, arrives.len())).collect(),
        }
    }

    /// A train of these segments alone.
    fn part(&self, cut: &Cut, segments: Range<usize>, all: usize) -> Vec<u8> {
        let Cut { mut header, tcp_at, data_at, segment } = *cut;
        let packet = &self.frame[VIRTIO_NET_HDR_LEN..];
        let data = data_at + segments.start * segment..packet.len().min(data_at + segments.end * segment);
        let mut part = vec![0; VIRTIO_NET_HDR_LEN];
        if data.len() <= segment {
            (header.gso_type, header.gso_size) = (NO_TRAIN, 0);
        }
        // The part has the length of a header.
        drop(header.encode(&mut part));
        part.extend_from_slice(&packet[..data_at]);
        part.extend_from_slice(&packet[data.clone()]);
        let (ip, tcp) = part[VIRTIO_NET_HDR_LEN..].split_at_mut(tcp_at);
        let (length, skipped) = (tcp_at + tcp.len(), segments.start * segment);
        put_16(ip, LENGTH_AT, low_16(length));
        put_16(ip, IDENTIFICATION_AT, get_16(ip, IDENTIFICATION_AT).wrapping_add(low_16(segments.start)));
        put_16(ip, IP_CHECKSUM_AT, 0);
        put_16(ip, IP_CHECKSUM_AT, checksum(ip));
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(skipped as u32);
        tcp[SEQUENCE_AT..SEQUENCE_AT + 4].copy_from_slice(&sequence.to_be_bytes());
        if segments.end < all {
            tcp[FLAGS_AT] &= !LAST_FLAGS;
        }
        if segments.start > 0 {
            tcp[FLAGS_AT] &= !FIRST_FLAGS;
        }
        // An unfinished checksum is the sum of the pseudo-header alone (RFC 9293 section 3.1); 6 is TCP.
        let pseudo = sum_16(u32::from(low_16(tcp.len())) + 6, &ip[ADDRESSES]);
        put_16(tcp, TCP_CHECKSUM_AT, pseudo);
        part
    }
}

/// The ranges of segments that arrive one after the other.
fn runs(arrives: &[bool]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    iter::from_fn(move || {
        let start = at + arrives.get(at..)?.iter().position(|arrives| *arrives)?;
        let length = arrives[start..].iter().take_while(|arrives| **arrives).count();
        at = start + length;
        Some(start..at)
    })
}

fn get_16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put_16(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A train of TCP over IPv4: 20 bytes of IPv4, 20 of TCP, and numbered bytes of data.
    fn train(data: usize, segment: u16) -> Vec<u8> {
        let header = VirtioNetHdr {
            flags: NEEDS_CHECKSUM,
            gso_type: TCP_OVER_IPV4,
            hdr_len: 40,
            gso_size: segment,
            csum_start: 20,
            csum_offset: 16,
        };
        let mut frame = vec![0; VIRTIO_NET_HDR_LEN + 40];
        header.encode(&mut frame).unwrap();
        let packet = &mut frame[VIRTIO_NET_HDR_LEN..];
        packet[0] = 0x45;
        put_16(packet, LENGTH_AT, low_16(40 + data));
        put_16(packet, IDENTIFICATION_AT, 0xffff);
        packet[9] = 6;
        packet[ADDRESSES].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[20 + SEQUENCE_AT..20 + SEQUENCE_AT + 4].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
        packet[20 + OFFSET_AT] = 5 << 4;
        packet[20 + FLAGS_AT] = 0x10 | LAST_FLAGS | FIRST_FLAGS;
        frame.extend((0..data).map(|at| (at % 251) as u8));
        frame
    }

    #[test]
    fn a_train_has_its_segments_and_stays_whole_if_all_arrive() {
        let frame = train(2_500, 1_000);
        let parsed = Train::parse(&frame).unwrap();
        assert_eq!(parsed.sizes(), [1_078, 1_078, 578]);
        assert_eq!(parsed.left(&[true; 3]), std::slice::from_ref(&frame));
        assert!(parsed.left(&[false; 3]).is_empty());
    }

    #[test]
    fn a_lost_segment_cuts_a_train_into_two_that_are_right_by_themselves() {
        let frame = train(3_500, 1_000);
        let parts = Train::parse(&frame).unwrap().left(&[true, false, true, true]);
        let [one, two] = parts.as_slice() else { panic!("{} parts", parts.len()) };
        for (part, data, gso, sequence, flags, id) in [
            (one, 0..1_000, (NO_TRAIN, 0), 0xffff_ff00_u32, 0x90, 0xffff_u16),
            (two, 2_000..3_500, (TCP_OVER_IPV4, 1_000), 0x6d0, 0x19, 1),
        ] {
            let header = VirtioNetHdr::decode(part).unwrap();
            assert_eq!((header.gso_type, header.gso_size, header.flags), (gso.0, gso.1, NEEDS_CHECKSUM));
            let packet = &part[VIRTIO_NET_HDR_LEN..];
            assert_eq!(packet[40..], frame[VIRTIO_NET_HDR_LEN + 40..][data.clone()], "{data:?}");
            assert_eq!(usize::from(get_16(packet, LENGTH_AT)), packet.len());
            assert_eq!(get_16(packet, IDENTIFICATION_AT), id);
            assert_eq!(sum_16(0, &packet[..20]), 0xffff, "the checksum of IPv4 is right");
            assert_eq!(packet[24..28], sequence.to_be_bytes());
            assert_eq!(packet[20 + FLAGS_AT], flags);
            let pseudo = 0x0a00 + 1 + 0x0a00 + 2 + 6 + u32::from(low_16(packet.len() - 20));
            assert_eq!(u32::from(get_16(packet, 20 + TCP_CHECKSUM_AT)), pseudo);
        }
    }

    #[test]
    fn what_is_no_train_is_one_segment_and_short_frames_are_none() {
        let mut single = train(100, 1_000);
        single[1] = NO_TRAIN;
        let parsed = Train::parse(&single).unwrap();
        assert_eq!(parsed.sizes(), [178]);
        assert_eq!((parsed.left(&[true]).len(), parsed.left(&[false]).len()), (1, 0));
        assert!(Train::parse(&single[..VIRTIO_NET_HDR_LEN - 1]).is_none());
        for end in VIRTIO_NET_HDR_LEN..VIRTIO_NET_HDR_LEN + 60 {
            let frame = train(100, 10);
            let parsed = Train::parse(&frame[..end]).unwrap();
            let arrives: Vec<_> = (0..parsed.sizes().len()).map(|number| number % 2 == 1).collect();
            drop(parsed.left(&arrives));
        }
    }
}
