//! Packets in a file of pcapng, which wireshark and tcpdump read.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use pcap_file::{
    DataLink, PcapError,
    pcapng::{
        PcapNgBlock as _, PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
            section_header::{SectionHeaderBlock, SectionHeaderOption},
        },
    },
};
use sallyport_cli::failure::{Failure, Kind, OutputClosed};
use sallyport_xdp::dump::Frame;

/// The resolution of time stamps: powers of ten, nanoseconds.
const NANOSECONDS: u8 = 9;

/// The rights of the file.
const OWN: u32 = 0o600;

/// The direction of a packet at its interface (pcapng, section 4.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    In = 1,
    Out = 2,
}

/// A file of pcapng, or a pipe.
pub(super) struct Capture {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    name: String,
    snap_bytes: u32,
    interfaces: HashMap<u32, u32>,
}

impl Capture {
    /// Makes the file; `-` is the standard output.
    pub(super) fn create(path: &Path, snap_bytes: u32) -> anyhow::Result<Self> {
        let (inner, name): (Box<dyn Write>, _) = if path == Path::new("-") {
            (Box::new(io::stdout()), "the standard output".to_owned())
        } else {
            let name = PathBuf::from(path).display().to_string();
            (Box::new(open(path)?), name)
        };
        let program = concat!("sallyport packet dump ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            endianness: pcap_file::Endianness::native(),
            options: vec![SectionHeaderOption::UserApplication(program.into())],
            ..Default::default()
        };
        let writer = PcapNgWriter::with_section_header(BufWriter::new(inner), section);
        let writer = writer.map_err(|error| unwritable(&name, error))?;
        Ok(Self { writer, name, snap_bytes, interfaces: HashMap::new() })
    }

    /// Writes a frame at an interface, with a comment. `time` is since 1970.
    pub(super) fn write(
        &mut self,
        (index, device): (u32, &str),
        time: Duration,
        frame: &Frame,
        direction: Direction,
        comment: &str,
    ) -> anyhow::Result<()> {
        let next = self.interfaces.len() as u32;
        let interface_id = *self.interfaces.entry(index).or_insert(next);
        if interface_id == next {
            let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, self.snap_bytes);
            block.options.push(InterfaceDescriptionOption::IfName(device.into()));
            block.options.push(InterfaceDescriptionOption::IfTsResol(NANOSECONDS));
            self.block(block.into_block())?;
        }
        let mut options = vec![EnhancedPacketOption::Flags(direction as u32)];
        options.push(EnhancedPacketOption::Comment(comment.into()));
        let data = frame.bytes.as_slice().into();
        let block = EnhancedPacketBlock { interface_id, timestamp: time, original_len: frame.length, data, options };
        self.block(block.into_block())
    }

    /// Hands what was written to the reader of the pipe.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.writer.get_mut().flush().map_err(|error| unwritable(&self.name, PcapError::IoError(error)))
    }

    fn block(&mut self, block: pcap_file::pcapng::Block<'_>) -> anyhow::Result<()> {
        self.writer.write_block(&block).map(drop).map_err(|error| unwritable(&self.name, error))
    }
}

/// Makes the file, or empties the one of this user. Packets are for nobody else, and no link leads to another file.
fn open(path: &Path) -> anyhow::Result<File> {
    let name = path.display();
    let link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(OWN).custom_flags(link).open(path);
    let failed = |error: io::Error| match error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        true => Failure::new(Kind::Refused, format!("{name} is a symbolic link: name the file itself")),
        false => Failure::new(Kind::Failed, format!("cannot write {name}: {error}")),
    };
    let file = opened.map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if found.is_file() {
        if found.uid() != rustix::process::geteuid().as_raw() || found.nlink() != 1 {
            let said = format!("{name} is a file of another user, or has another name too: remove it, or name another");
            return Err(Failure::new(Kind::Refused, said).into());
        }
        file.set_permissions(std::fs::Permissions::from_mode(OWN)).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
    }
    Ok(file)
}

fn unwritable(name: &str, error: PcapError) -> anyhow::Error {
    match error {
        PcapError::IoError(error) if error.kind() == io::ErrorKind::BrokenPipe => OutputClosed.into(),
        PcapError::IoError(error) => Failure::new(Kind::Failed, format!("cannot write {name}: {error}")).into(),
        error => Failure::new(Kind::Failed, format!("cannot write {name}: {error}")).into(),
    }
}
