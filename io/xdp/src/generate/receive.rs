//! The receiver of a run: a program at a device, which is gone when the process is.

use std::{os::fd::AsFd as _, time::Duration};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object};
use sallyport_packet_model::generate::Latency;

use super::layout::{self, Received};
use crate::{
    XdpError,
    attach::Attached,
    error::{asked, require_root},
    kernel::Device,
    object,
};

/// The function of the program.
const FUNCTION: &str = "sallyport_receive";

/// A receiver. Its end removes the program.
#[derive(Debug)]
pub struct Receiver {
    wants: MapHandle,
    receipts: MapHandle,
    zero: Vec<u8>,
    processors: usize,
    // The link goes first, and then the program.
    _link: Link,
    _object: Object,
}

/// What has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receipt {
    /// Frames.
    pub packets: u64,
    /// Their bytes without check sequences.
    pub bytes: u64,
    /// Frames behind one with a higher number, on the same processor.
    pub reordered: u64,
    /// From the first to the last.
    pub time: Duration,
    /// From the stamp to the arrival.
    pub latency: Latency,
}

impl Receiver {
    /// Attaches a receiver, which looks for no run yet.
    ///
    /// # Errors
    /// The device has a program already.
    pub fn attach(device: &Device) -> Result<Self, XdpError> {
        require_root()?;
        let object = layout::load(FUNCTION, 0)?;
        let program = object.progs_mut().find(|program| program.name() == FUNCTION).ok_or(XdpError::NoProgram)?;
        Attached::new(program.as_fd()).refuse_other(device)?;
        object::forget_words();
        let link = program.attach_xdp(device.index as i32).map_err(|source| match object::last_words() {
            said if said.contains("-ERANGE") => XdpError::MtuTooLarge(device.name.clone()),
            _ => asked(format!("attach to {}", device.name))(source),
        })?;
        let (wants, receipts) = (layout::map(&object, "wants")?, layout::map(&object, "receipts")?);
        let processors = libbpf_rs::num_possible_cpus().map_err(asked("count the processors"))?;
        let zero = vec![0; receipts.value_size() as usize];
        Ok(Self { wants, receipts, zero, processors, _link: link, _object: object })
    }

    /// Forgets what was counted, and looks for another run; for every frame, and takes none away, if `is_all`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn expect(&self, run: u32, is_all: bool) -> Result<(), XdpError> {
        let key = 0_u32.to_ne_bytes();
        let zeros = vec![self.zero.clone(); self.processors];
        self.receipts.update_percpu(&key, &zeros, MapFlags::ANY).map_err(asked("clear the receiver's counts"))?;
        let wanted: Vec<u8> = [run, u32::from(is_all)].into_iter().flat_map(u32::to_ne_bytes).collect();
        self.wants.update(&key, &wanted, MapFlags::ANY).map_err(asked("tell the receiver its run"))
    }

    /// What has arrived by now.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn receipt(&self) -> Result<Receipt, XdpError> {
        let found = self.receipts.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(asked("read the receiver's counts"))?.unwrap_or_default();
        let mut receipt = Receipt::default();
        let (mut first, mut last) = (u64::MAX, 0);
        for received in found.iter().filter_map(|bytes| Received::of_bytes(bytes)) {
            receipt.packets += received.packets;
            receipt.bytes += received.bytes;
            receipt.reordered += received.reordered;
            receipt.latency.add(received.buckets, received.longest, received.sum);
            if received.packets > 0 {
                (first, last) = (first.min(received.first), last.max(received.last));
            }
        }
        receipt.time = Duration::from_nanos(last.saturating_sub(first));
        Ok(receipt)
    }
}
