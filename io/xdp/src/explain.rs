//! What would become of a packet: the program itself decides, over a packet that nobody sends.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use libbpf_rs::{MapCore as _, MapFlags, Object, ProgramInput};

use crate::{
    Reason, Router, StandingPort, XdpError, attach,
    error::asked,
    object::{self, Tables},
};

/// The function of the program.
const FUNCTION: &str = "sallyport_explain";
/// The bytes of `struct xdp_md` and of `struct verdict`.
const CONTEXT_BYTES: usize = 24;
const VERDICT_BYTES: usize = 64;
/// The time to live of a packet in question.
const TTL: u8 = 64;
/// The numbers of protocols whose headers NAT and policy read.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// A packet in question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The source.
    pub source: IpAddr,
    /// The destination, of the same family.
    pub destination: IpAddr,
    /// The protocol above IP.
    pub protocol: u8,
    /// The ports, which TCP and UDP have.
    pub ports: (u16, u16),
    /// The length of the packet with the header of IP, in bytes.
    pub length: u16,
}

/// What would become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Why.
    pub reason: Reason,
    /// The device that it comes in by.
    pub from: Option<u32>,
    /// The device that it leaves by, where a route was found.
    pub to: Option<u32>,
    /// The next hop, where a route was found.
    pub hop: Option<IpAddr>,
    /// The MTU of the route, where the packet is too big.
    pub mtu: Option<u16>,
    /// The address of the next hop's card, where it is forwarded.
    pub mac: Option<[u8; 6]>,
    /// What the NAT makes of the source.
    pub new_source: Option<NewSource>,
    /// What the NAT makes of the destination.
    pub new_destination: Option<SocketAddrV4>,
    /// The place of the policy's rule that decides, from 1 on; the number after the last is the default.
    pub rule: Option<u32>,
}

/// What the NAT makes of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewSource {
    /// The end outside of a session that stands.
    Standing(SocketAddrV4),
    /// An end that the first packet chooses.
    OfPool,
}

impl Router {
    /// Runs the router over frames that come in by this device: what XDP says to each, and the frame after it.
    ///
    /// # Errors
    /// No router stands, or a frame has fewer than 14 bytes.
    pub fn run_frames(&self, frames: &[Vec<u8>], ifindex: u32) -> Result<Vec<(u32, Vec<u8>)>, XdpError> {
        let runner = self.runner()?;
        frames.iter().map(|frame| runner.run(frame, ifindex)).collect()
    }

    /// The programs of the router, for frames that nobody sends.
    ///
    /// # Errors
    /// No router stands.
    pub fn runner(&self) -> Result<Runner, XdpError> {
        Ok(Runner { object: object::load(self.pins(), false, Tables::Standing)? })
    }
}

/// The programs of a router, which share its maps with those at its ports.
#[derive(Debug)]
pub struct Runner {
    object: Object,
}

impl Runner {
    /// Says what would become of a packet that comes in by this port or VLAN. No counter moves.
    ///
    /// # Errors
    /// The kernel does not run the program.
    pub fn ask(&self, question: &Question, from: &StandingPort) -> Result<Verdict, XdpError> {
        self.explain(&question.to_frame(from), from.parent)
    }

    /// Says what would become of a frame that comes in by this device. No counter moves.
    ///
    /// # Errors
    /// The frame has fewer than 14 bytes.
    pub fn explain(&self, frame: &[u8], ifindex: u32) -> Result<Verdict, XdpError> {
        run(&self.object, FUNCTION, frame, ifindex)?;
        let verdicts = self.object.maps().find(|map| map.name() == "verdicts").ok_or(XdpError::NoProgram)?;
        let found = verdicts.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(asked("read the verdict"))?;
        found.and_then(|bytes| Verdict::of_bytes(&bytes, frame)).ok_or(XdpError::NoProgram)
    }

    /// Runs the router over a frame that comes in by this device: what XDP says, and the frame after it.
    ///
    /// # Errors
    /// The frame has fewer than 14 bytes.
    pub fn run(&self, frame: &[u8], ifindex: u32) -> Result<(u32, Vec<u8>), XdpError> {
        run(&self.object, attach::FUNCTION, frame, ifindex)
    }
}

/// Runs a program once.
pub(crate) fn run(object: &Object, function: &str, frame: &[u8], ifindex: u32) -> Result<(u32, Vec<u8>), XdpError> {
    let program = object.progs_mut().find(|program| program.name() == function).ok_or(XdpError::NoProgram)?;
    let mut context = [0; CONTEXT_BYTES];
    context[4..8].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
    context[12..16].copy_from_slice(&ifindex.to_ne_bytes());
    let mut after = vec![0; frame.len() + 128];
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(frame),
        data_out: Some(&mut after),
        repeat: 1,
        ..ProgramInput::default()
    };
    let output = program.test_run(input).map_err(asked("run the program over a packet"))?;
    let length = output.data.as_ref().map_or(0, |data| data.len());
    let verdict = output.return_value;
    after.truncate(length);
    Ok((verdict, after))
}

impl Question {
    /// The frame, as it would come in.
    pub(crate) fn to_frame(self, from: &StandingPort) -> Vec<u8> {
        let mut frame = from.mac.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1]);
        if let Some(vid) = from.vid {
            frame.extend(0x8100_u16.to_be_bytes());
            frame.extend(vid.to_be_bytes());
        }
        let header = if self.destination.is_ipv4() { 20 } else { 40 };
        let payload = self.to_payload(usize::from(self.length).saturating_sub(header));
        let length = header + payload.len();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend(0x0800_u16.to_be_bytes());
                let mut ip = [0_u8; 20];
                ip[0] = 0x45;
                ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
                (ip[8], ip[9]) = (TTL, self.protocol);
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
                let sum = (sum & 0xffff) + (sum >> 16);
                let sum = (sum & 0xffff) + (sum >> 16);
                ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
                frame.extend(ip);
            }
            (source, destination) => {
                let bytes = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                frame.extend(0x86dd_u16.to_be_bytes());
                frame.extend([0x60, 0, 0, 0]);
                frame.extend(((length - header) as u16).to_be_bytes());
                frame.extend([self.protocol, TTL]);
                frame.extend(bytes(source));
                frame.extend(bytes(destination));
            }
        }
        frame.extend(payload);
        frame
    }

    /// What follows the header of IP, of this length or of the least that the protocol has: the first packet of a flow.
    fn to_payload(self, length: usize) -> Vec<u8> {
        let least = if self.protocol == TCP { 20 } else { 8 };
        let mut bytes = vec![0; length.max(least)];
        if matches!(self.protocol, ICMP | ICMPV6) {
            bytes[0] = if self.protocol == ICMP { 8 } else { 128 };
            return bytes;
        }
        bytes[..2].copy_from_slice(&self.ports.0.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.ports.1.to_be_bytes());
        match self.protocol {
            // Five words of header, and a SYN.
            TCP => (bytes[12], bytes[13]) = (5 << 4, 2),
            UDP => {
                let length = (bytes.len() as u16).to_be_bytes();
                bytes[4..6].copy_from_slice(&length);
            }
            _ => {}
        }
        bytes
    }
}

impl Verdict {
    /// Reads `struct verdict`; the frame tells the family.
    fn of_bytes(bytes: &[u8], frame: &[u8]) -> Option<Self> {
        let bytes: &[u8; VERDICT_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 4].try_into().ok().map(u32::from_ne_bytes);
        let reason = Reason::of(word(0)? as usize)?;
        let was_looked_up = matches!(
            reason,
            Reason::Forwarded | Reason::TooBig | Reason::Neighbor | Reason::OtherPort | Reason::NoRoom
        );
        let tag = if frame.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 };
        let hop = match frame.get(12 + tag..14 + tag) {
            Some([0x86, 0xdd]) => IpAddr::from(<[u8; 16]>::try_from(&bytes[16..32]).ok()?),
            _ => IpAddr::from(<[u8; 4]>::try_from(&bytes[16..20]).ok()?),
        };
        let end = |address: usize, port: usize| -> Option<SocketAddrV4> {
            let address = Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[address..address + 4]).ok()?);
            Some(SocketAddrV4::new(address, u16::from_be_bytes([bytes[port], bytes[port + 1]])))
        };
        let new_source = end(44, 52).map(|source| match source.ip().is_unspecified() {
            true => NewSource::OfPool,
            false => NewSource::Standing(source),
        });
        Some(Self {
            reason,
            new_source: new_source.filter(|_| bytes[56] != 0),
            new_destination: end(48, 54).filter(|_| bytes[57] != 0),
            rule: word(60).filter(|rule| *rule != 0),
            from: word(4).filter(|index| *index != 0),
            to: word(8).filter(|index| was_looked_up && *index != 0),
            hop: was_looked_up.then_some(hop),
            mtu: (reason == Reason::TooBig).then(|| word(12)).flatten().map(|mtu| mtu as u16),
            mac: (reason == Reason::Forwarded).then(|| bytes[38..44].try_into().ok()).flatten(),
        })
    }
}
