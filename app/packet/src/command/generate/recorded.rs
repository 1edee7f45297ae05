//! Frames of a file: pcap or pcapng.

use std::{fs::File, io::Read as _, path::Path};

use pcap_file::{
    DataLink, PcapError,
    pcap::PcapReader,
    pcapng::{Block, PcapNgReader, blocks::interface_description::InterfaceDescriptionOption},
};
use sallyport_cli::failure::{Failure, Kind};
use sallyport_packet_model::generate::Recording;
use sallyport_xdp::generate::{MAX_RECORD_BYTES, MAX_RECORDS};

/// The most bytes of a file: frames of the longest kind, and what formats add.
const MAX_FILE_BYTES: u64 = (MAX_RECORDS * (MAX_RECORD_BYTES + 64)) as u64;
/// What a pcapng file starts with.
const NEXT_GENERATION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The unit of times in pcapng where an interface names none: 10^-6 s.
const MICROSECONDS: u8 = 6;
/// The fewest bytes of a frame: the header of Ethernet.
const LEAST: usize = 14;

/// A frame, its length on the wire, and when it was captured, in nanoseconds.
type Found = (Vec<u8>, u32, u64);

/// Reads all frames, none longer than `most` bytes.
pub(super) fn read(path: &Path, most: usize) -> Result<Recording, Failure> {
    let name = path.display();
    let failed = |error: std::io::Error| Failure::new(Kind::Failed, format!("cannot read {name}: {error}"));
    let mut bytes = Vec::new();
    let read = File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(Failure::usage(format!("{name} has more than {MAX_FILE_BYTES} bytes")));
    }
    frames_of(&bytes, most).map_err(|reason| Failure::usage(format!("{name}: {reason}")))
}

fn frames_of(bytes: &[u8], most: usize) -> Result<Recording, String> {
    let found = if bytes.starts_with(&NEXT_GENERATION) { of_pcapng(bytes)? } else { of_pcap(bytes)? };
    if found.is_empty() {
        return Err("the file has no frames".to_owned());
    }
    let most = most.min(MAX_RECORD_BYTES);
    let mut frames = Vec::with_capacity(found.len());
    for (number, (frame, length, time)) in (1..).zip(found) {
        if frame.len() < length as usize {
            return Err(format!("frame {number} was captured only in part ({} of {length} bytes)", frame.len()));
        }
        if !(LEAST..=most).contains(&frame.len()) {
            return Err(format!("frame {number} of {} bytes is out of bounds: {LEAST} to {most} bytes", frame.len()));
        }
        frames.push((time, frame));
    }
    Ok(Recording::new(frames))
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

fn keep(all: &mut Vec<Found>, found: Found) -> Result<(), String> {
    if all.len() == MAX_RECORDS {
        return Err(format!("the file has more than {MAX_RECORDS} frames"));
    }
    all.push(found);
    Ok(())
}

fn of_pcap(bytes: &[u8]) -> Result<Vec<Found>, String> {
    let mut reader = PcapReader::new(bytes).map_err(broken(0))?;
    check_ethernet(reader.header().datalink)?;
    let mut found = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(broken(found.len() + 1))?;
        let time = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
        keep(&mut found, (packet.data.into_owned(), packet.orig_len, time))?;
    }
    Ok(found)
}

fn of_pcapng(bytes: &[u8]) -> Result<Vec<Found>, String> {
    let mut reader = PcapNgReader::new(bytes).map_err(broken(0))?;
    let (mut found, mut units) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.map_err(broken(found.len() + 1))? {
            // Interfaces count anew in each section.
            Block::SectionHeader(_) => units.clear(),
            Block::InterfaceDescription(interface) => {
                check_ethernet(interface.linktype)?;
                let unit = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfTsResol(unit) => Some(*unit),
                    _ => None,
                });
                units.push(unit.unwrap_or(MICROSECONDS));
            }
            Block::EnhancedPacket(packet) => {
                let unit = units.get(packet.interface_id as usize).copied().unwrap_or(MICROSECONDS);
                // The library gives the number of the file, as if it counted nanoseconds.
                let time = nanoseconds(packet.timestamp.as_nanos(), unit);
                keep(&mut found, (packet.data.into_owned(), packet.original_len, time))?;
            }
            // Such a frame has no time: it counts as simultaneous.
            Block::SimplePacket(packet) => keep(&mut found, (packet.data.into_owned(), packet.original_len, 0))?,
            _ => {}
        }
    }
    Ok(found)
}

/// A time of pcapng in nanoseconds. The unit is a power of ten, or of two with the highest bit.
fn nanoseconds(time: u128, unit: u8) -> u64 {
    let power = u32::from(unit & 0x7f).min(38);
    let parts = if unit & 0x80 == 0 { 10_u128.pow(power) } else { 1 << power };
    u64::try_from(time.saturating_mul(1_000_000_000) / parts).unwrap_or(u64::MAX)
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
        let read = frames_of(&whole, 1_518).unwrap().frames;
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
    fn times_have_the_unit_of_their_interface() {
        assert_eq!(nanoseconds(3, MICROSECONDS), 3_000);
        assert_eq!((nanoseconds(3, 9), nanoseconds(1 << 20, 0x80 | 20)), (3, 1_000_000_000));
        assert_eq!((nanoseconds(u128::MAX, 0), nanoseconds(1, 0x7f), nanoseconds(1, 0xff)), (u64::MAX, 0, 0));
        let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
        for options in [vec![], vec![InterfaceDescriptionOption::IfTsResol(9)]] {
            let block = InterfaceDescriptionBlock { options, ..InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0) };
            writer.write_pcapng_block(block).unwrap();
        }
        for (interface_id, time) in [(0, 1_000), (1, 3_000_000)] {
            let (timestamp, data) = (Duration::from_nanos(time), Cow::Borrowed(&[9; 61][..]));
            let block = EnhancedPacketBlock { interface_id, timestamp, original_len: 61, data, options: Vec::new() };
            writer.write_pcapng_block(block).unwrap();
        }
        // 1 ms by microseconds, and 3 ms by nanoseconds.
        assert_eq!(frames_of(&writer.into_inner(), 1_518).unwrap().times, [0, 2_000_000]);
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
        assert_eq!(frames_of(&bytes, 1_518).unwrap().frames, [vec![9; 61]]);
        assert!(frames_of(&bytes[..bytes.len() - 2], 1_518).unwrap_err().contains("frame 1 is broken"));
    }
}
