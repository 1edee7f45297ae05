//! Frames of a file: pcap or pcapng.

use std::{fs::File, io::Read as _, path::Path};

use pcap_file::{
    DataLink, PcapError,
    pcap::PcapReader,
    pcapng::{Block, PcapNgReader},
};
use sallyport_cli::failure::{Failure, Kind};
use sallyport_xdp::generate::{MAX_RECORD_BYTES, MAX_RECORDS};

/// The most bytes of a file: frames of the longest kind, and what formats add.
const MAX_FILE_BYTES: u64 = (MAX_RECORDS * (MAX_RECORD_BYTES + 64)) as u64;
/// What a pcapng file starts with.
const NEXT_GENERATION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The fewest bytes of a frame: the header of Ethernet.
const LEAST: usize = 14;

/// A frame, and its length on the wire.
type Found = (Vec<u8>, u32);

/// Reads all frames, none longer than `most` bytes.
pub(super) fn read(path: &Path, most: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let name = path.display();
    let failed = |error: std::io::Error| Failure::new(Kind::Failed, format!("cannot read {name}: {error}"));
    let mut bytes = Vec::new();
    let read = File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(Failure::usage(format!("{name} has more than {MAX_FILE_BYTES} bytes")));
    }
    frames_of(&bytes, most).map_err(|reason| Failure::usage(format!("{name}: {reason}")))
}

fn frames_of(bytes: &[u8], most: usize) -> Result<Vec<Vec<u8>>, String> {
    let found = if bytes.starts_with(&NEXT_GENERATION) { of_pcapng(bytes)? } else { of_pcap(bytes)? };
    if found.is_empty() {
        return Err("the file has no frames".to_owned());
    }
    let most = most.min(MAX_RECORD_BYTES);
    let mut frames = Vec::with_capacity(found.len());
    for (number, (frame, length)) in (1..).zip(found) {
        if frame.len() < length as usize {
            return Err(format!("frame {number} was captured only in part ({} of {length} bytes)", frame.len()));
        }
        if !(LEAST..=most).contains(&frame.len()) {
            return Err(format!("frame {number} of {} bytes is out of bounds: {LEAST} to {most} bytes", frame.len()));
        }
        frames.push(frame);
    }
    Ok(frames)
}

/// The sentence for a part that is broken.
fn broken(number: usize) -> impl Fn(PcapError) -> String {
    move |error| {
        let reason = match error {
            PcapError::IncompleteBuffer | PcapError::IoError(_) => "the file ends too early".to_owned(),
            error => error.to_string(),
        };
        match number {
            0 => format!("this is no pcap or pcapng file, or its header is broken: {reason}"),
            number => format!("frame {number} is broken: {reason}"),
        }
    }
}

fn keep(found: &mut Vec<Found>, frame: Vec<u8>, length: u32) -> Result<(), String> {
    if found.len() == MAX_RECORDS {
        return Err(format!("the file has more than {MAX_RECORDS} frames"));
    }
    found.push((frame, length));
    Ok(())
}

fn of_pcap(bytes: &[u8]) -> Result<Vec<Found>, String> {
    let mut reader = PcapReader::new(bytes).map_err(broken(0))?;
    check_ethernet(reader.header().datalink)?;
    let mut found = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(broken(found.len() + 1))?;
        keep(&mut found, packet.data.into_owned(), packet.orig_len)?;
    }
    Ok(found)
}

fn of_pcapng(bytes: &[u8]) -> Result<Vec<Found>, String> {
    let mut reader = PcapNgReader::new(bytes).map_err(broken(0))?;
    let mut found = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.map_err(broken(found.len() + 1))? {
            Block::InterfaceDescription(interface) => check_ethernet(interface.linktype)?,
            Block::EnhancedPacket(packet) => keep(&mut found, packet.data.into_owned(), packet.original_len)?,
            Block::SimplePacket(packet) => keep(&mut found, packet.data.into_owned(), packet.original_len)?,
            _ => {}
        }
    }
    Ok(found)
}

fn check_ethernet(link: DataLink) -> Result<(), String> {
    if link == DataLink::ETHERNET {
        return Ok(());
    }
    Err(format!("its frames are not of Ethernet but of the link type {}", u32::from(link)))
}

#[cfg(test)]
mod tests {
    use std::{borrow::Cow, time::Duration};

    use pcap_file::{
        pcap::{PcapHeader, PcapPacket, PcapWriter},
        pcapng::{
            PcapNgWriter,
            blocks::{enhanced_packet::EnhancedPacketBlock, interface_description::InterfaceDescriptionBlock},
        },
    };

    use super::*;

    fn pcap(frames: &[(&[u8], u32)], datalink: DataLink) -> Vec<u8> {
        let header = PcapHeader { datalink, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for (frame, length) in frames {
            writer.write_packet(&PcapPacket::new(Duration::ZERO, *length, frame)).unwrap();
        }
        writer.into_writer()
    }

    #[test]
    fn frames_are_read_as_they_are_and_what_is_broken_has_a_sentence() {
        let frame = [7; 60];
        let whole = pcap(&[(&frame, 60), (&frame[..14], 14)], DataLink::ETHERNET);
        let read = frames_of(&whole, 1_518).unwrap();
        assert_eq!((read[0].as_slice(), read[1].len()), (frame.as_slice(), 14));
        let said = |bytes: &[u8]| frames_of(bytes, 1_518).unwrap_err();
        assert_eq!(said(&whole[..whole.len() - 3]), "frame 2 is broken: the file ends too early");
        assert!(said(&whole[..10]).starts_with("this is no pcap or pcapng file, or its header is broken"));
        assert!(said(b"hello, this is text and no capture").starts_with("this is no pcap or pcapng file"));
        assert!(said(&pcap(&[(&frame, 90)], DataLink::ETHERNET)).contains("only in part (60 of 90 bytes)"));
        assert!(said(&pcap(&[(&frame, 60)], DataLink::RAW)).contains("not of Ethernet"));
        assert_eq!(said(&pcap(&[], DataLink::ETHERNET)), "the file has no frames");
        assert!(said(&pcap(&[(&[1; 13], 13)], DataLink::ETHERNET)).contains("frame 1 of 13 bytes is out of bounds"));
        assert!(said(&pcap(&[(&[1; 1_519], 1_519)], DataLink::ETHERNET)).contains("14 to 1518 bytes"));
    }

    #[test]
    fn pcapng_is_read_too() {
        let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
        writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 65_535)).unwrap();
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::ZERO,
            original_len: 61,
            data: Cow::Borrowed(&[9; 61]),
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).unwrap();
        let bytes = writer.into_inner();
        assert_eq!(frames_of(&bytes, 1_518).unwrap(), [vec![9; 61]]);
        assert!(frames_of(&bytes[..bytes.len() - 2], 1_518).unwrap_err().contains("frame 1 is broken"));
    }
}
