//! A program at a device: attached in native mode, replaced in place, detached.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::{ErrorKind, Program, Xdp, XdpFlags, query::ProgInfoIter};

use crate::{XdpError, error::asked, kernel::Device};

/// The program of a router.
pub(crate) const FUNCTION: &str = "sallyport_router";
/// A driver that sends frames of XDP: `NETDEV_XDP_ACT_NDO_XMIT`.
const CAN_SEND: u64 = 4;
/// The most programs of the kernel that are looked at for a name.
const MAX_PROGRAMS: usize = 100_000;

/// A program by its file descriptor.
pub(crate) struct Attached<'a> {
    program: BorrowedFd<'a>,
}

impl<'a> Attached<'a> {
    pub(crate) fn new(program: BorrowedFd<'a>) -> Self {
        Self { program }
    }

    /// Attaches the program, or replaces one of `ours`, without a packet between. Returns the id of the one before.
    pub(crate) fn attach(&self, device: &Device, ours: &[OwnedFd]) -> Result<Option<u32>, XdpError> {
        let index = device.index as i32;
        let xdp = Xdp::new(self.program);
        let failed = |source: libbpf_rs::Error| match source.kind() {
            ErrorKind::Unsupported => XdpError::GenericOnly(device.name.clone()),
            _ => asked(format!("attach to {}", device.name))(source),
        };
        match self.there(device)? {
            0 => xdp.attach(index, XdpFlags::DRV_MODE | XdpFlags::UPDATE_IF_NOEXIST).map_err(failed).map(|()| None),
            id => {
                let old = ours.iter().find(|program| id_of(program).is_some_and(|own| own == id));
                let old = old.ok_or_else(|| self.taken(device, id))?;
                xdp.replace(index, old.as_fd()).map_err(failed).map(|()| Some(id))
            }
        }
    }

    /// Refuses a device that has a program.
    pub(crate) fn refuse_other(&self, device: &Device) -> Result<(), XdpError> {
        match self.there(device)? {
            0 => Ok(()),
            id => Err(self.taken(device, id)),
        }
    }

    /// Refuses a device whose driver does not send what is redirected to it. Some drivers do once they have a program.
    pub(crate) fn refuse_unable(&self, device: &Device) -> Result<(), XdpError> {
        let found = Xdp::new(self.program).query(device.index as i32, XdpFlags::NONE);
        let found = found.map_err(asked(format!("look at the driver of {}", device.name)))?;
        if found.feature_flags & CAN_SEND == 0 { Err(XdpError::CannotSend(device.name.clone())) } else { Ok(()) }
    }

    /// The id of the program at a device, 0 for none.
    pub(crate) fn there(&self, device: &Device) -> Result<u32, XdpError> {
        let found = Xdp::new(self.program).query(device.index as i32, XdpFlags::NONE);
        let found = found.map_err(asked(format!("look at the program of {}", device.name)))?;
        Ok([found.prog_id, found.drv_prog_id, found.skb_prog_id].into_iter().find(|id| *id != 0).unwrap_or(0))
    }

    /// Whether the program of a device runs in generic mode.
    fn is_generic(&self, device: &Device) -> bool {
        let found = Xdp::new(self.program).query(device.index as i32, XdpFlags::NONE);
        found.is_ok_and(|found| found.skb_prog_id != 0)
    }

    /// The refusal of a device that has this program.
    fn taken(&self, device: &Device, id: u32) -> XdpError {
        // `ip link` removes a program only by the word of its mode.
        let mode = if self.is_generic(device) { "xdpgeneric" } else { "xdp" };
        let (name, device) = (name_of(id), device.name.clone());
        if !name.is_empty() && FUNCTION.starts_with(&name) {
            return XdpError::OtherRouter { device };
        }
        let name = if name.is_empty() { "without a name".to_owned() } else { name };
        XdpError::AlreadyAttached { device, name, id, mode }
    }

    /// Detaches the program, if it is one of `ours`. Says whether it was.
    pub(crate) fn detach(&self, device: &Device, ours: &[OwnedFd]) -> Result<bool, XdpError> {
        let id = self.there(device)?;
        if id == 0 || !ours.iter().any(|program| id_of(program).is_some_and(|own| own == id)) {
            return Ok(false);
        }
        let detached = Xdp::new(self.program).detach(device.index as i32, XdpFlags::DRV_MODE);
        detached.map_err(asked(format!("detach from {}", device.name))).map(|()| true)
    }
}

/// The id of a program.
pub(crate) fn id_of(program: &OwnedFd) -> Option<u32> {
    Program::id_from_fd(program.as_fd()).ok()
}

/// The name of the program of this id, of which the kernel keeps 15 bytes; empty if it has none.
fn name_of(id: u32) -> String {
    let mut programs = ProgInfoIter::default().take(MAX_PROGRAMS);
    let found = programs.find(|program| program.id == id);
    found.map(|program| program.name.to_string_lossy().into_owned()).unwrap_or_default()
}
