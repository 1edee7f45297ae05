//! A sender whose frames the kernel makes, from pages of its own.

use std::{os::fd::AsFd as _, sync::atomic::AtomicBool, sync::atomic::Ordering};

use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle, Object, ProgramInput};
use sallyport_packet_model::generate::Pace;

use super::{
    Plan, Source,
    layout::{self, State},
};
use crate::{XdpError, attach::Attached, error::asked, kernel::Device};

/// Runs over pages that are sent: `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 2;
/// How many runs of the program one call has. It ends earlier, by a signal, once the program has sent all.
const RUNS: u32 = u32::MAX >> 1;

/// A loaded program, with tables of its own.
#[derive(Debug)]
pub(super) struct LiveSender {
    object: Object,
    states: MapHandle,
    paces: MapHandle,
    function: String,
    frame: Vec<u8>,
}

impl LiveSender {
    pub(super) fn load(plan: &Plan, device: &Device) -> Result<Self, XdpError> {
        let recording = match &plan.source {
            Source::Records(recording) => Some(recording),
            Source::Traffic(_) => None,
        };
        let function = layout::function_of(&plan.source);
        let object = layout::load(&function, recording.map_or(0, |recording| recording.frames.len()))?;
        let program = object.progs_mut().find(|program| program.name() == function.as_str());
        Attached::new(program.ok_or(XdpError::NoProgram)?.as_fd()).refuse_unable(device)?;
        let write = |name: &str, value: &[u8]| {
            let written = layout::map(&object, name)?.update(&0_u32.to_ne_bytes(), value, MapFlags::ANY);
            written.map_err(asked(format!("fill the table {name}")))
        };
        write("plans", &layout::plan_bytes(plan))?;
        write("paces", &layout::pace_bytes(plan.pace))?;
        write("outputs", &device.index.to_ne_bytes())?;
        if let Some(recording) = recording {
            let table = layout::map(&object, "records")?;
            let times = recording.scaled(plan.speed.unwrap_or(1.0));
            for (key, (frame, at)) in (0_u32..).zip(recording.frames.iter().zip(times)) {
                let written = table.update(&key.to_ne_bytes(), &layout::record_bytes(frame, at), MapFlags::ANY);
                written.map_err(asked("fill the table of frames"))?;
            }
        }
        let (states, paces) = (layout::map(&object, "states")?, layout::map(&object, "paces")?);
        Ok(Self { object, states, paces, function, frame: vec![0; layout::longest(&plan.source)] })
    }

    /// Sends until the plan is done, or a signal comes and `is_stopped` is so.
    pub(super) fn send(&self, is_stopped: &AtomicBool) -> Result<(), XdpError> {
        let program = self.object.progs_mut().find(|program| program.name() == self.function.as_str());
        let program = program.ok_or(XdpError::NoProgram)?;
        // The runs of a call are over before the plan is, or a signal was for another sender: another call goes on.
        while !is_stopped.load(Ordering::Relaxed) && !self.state()?.is_done {
            let input = ProgramInput {
                data_in: Some(&self.frame),
                flags: LIVE_FRAMES,
                repeat: RUNS,
                ..ProgramInput::default()
            };
            match program.test_run(input) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(asked("send frames from pages of its own")(error)),
            }
        }
        Ok(())
    }

    pub(super) fn state(&self) -> Result<State, XdpError> {
        let found = self.states.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(asked("read the state of the generator"))?;
        found.and_then(|bytes| State::of_bytes(&bytes)).ok_or(XdpError::NoProgram)
    }

    pub(super) fn set_pace(&self, pace: Pace) {
        // The old pace goes on where the kernel refuses.
        drop(self.paces.update(&0_u32.to_ne_bytes(), &layout::pace_bytes(pace), MapFlags::ANY));
    }
}
