//! A run of the generator.

use std::{
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle, Object, ProgramInput, Xdp};
use rustix::{
    process::{Signal, getpid, kill_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use sallyport_packet_model::generate::Pace;

use super::{
    Plan, Source,
    layout::{self, State},
};
use crate::{
    XdpError,
    error::{asked, require_root},
    kernel::Device,
};

/// Runs over pages that are sent: `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 2;
/// How many runs of the program one call has. It ends earlier, by a signal, once the program has sent all.
const RUNS: u32 = u32::MAX >> 1;
/// How often the state is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// A driver that sends frames of XDP: `NETDEV_XDP_ACT_NDO_XMIT`.
const CAN_SEND: u64 = 4;

/// A loaded generator. It sends in the network namespace of the process.
#[derive(Debug)]
pub struct Generator {
    object: Object,
    function: String,
    frame: Vec<u8>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Frames.
    pub sent: u64,
    /// Their bytes without check sequences.
    pub bytes: u64,
    /// From the first frame to the last.
    pub time: Duration,
    /// Whether the program has sent all.
    pub is_done: bool,
}

impl Progress {
    /// Frames a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        // The time is between the first and the last, so one frame is not within.
        self.sent.saturating_sub(1) as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

impl Generator {
    /// Loads the program for this plan, which sends by this device.
    ///
    /// # Errors
    /// The kernel does not take it, or the device sends no frames of XDP.
    pub fn load(plan: &Plan, device: &Device) -> Result<Self, XdpError> {
        require_root()?;
        let records: &[Vec<u8>] = match &plan.source {
            Source::Records(records) => records,
            Source::Traffic(_) => &[],
        };
        let function = layout::function_of(&plan.source);
        let object = layout::load(&function, records.len())?;
        check(&object, &function, device)?;
        let write = |name: &str, key: u32, value: &[u8]| {
            let written = layout::map(&object, name)?.update(&key.to_ne_bytes(), value, MapFlags::ANY);
            written.map_err(asked(format!("fill the table {name}")))
        };
        write("plans", 0, &layout::plan_bytes(plan))?;
        write("paces", 0, &layout::pace_bytes(plan.pace))?;
        write("outputs", 0, &device.index.to_ne_bytes())?;
        let table = layout::map(&object, "records")?;
        for (key, record) in records.iter().enumerate() {
            let written = table.update(&(key as u32).to_ne_bytes(), &layout::record_bytes(record), MapFlags::ANY);
            written.map_err(asked("fill the table of frames"))?;
        }
        Ok(Self { object, function, frame: vec![0; layout::longest(&plan.source)] })
    }

    /// Sends on this thread and this processor until the plan is done or a signal comes.
    ///
    /// The thread must be the first of the process, for the kernel gives it the signals of the process.
    ///
    /// The process handles `signal`, which this ends the call by; any other handled signal ends the run early.
    /// `watch` is called from another thread every few milliseconds with how far the run is. It may set another pace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn run(
        &self,
        processor: usize,
        signal: Signal,
        watch: impl FnMut(Progress) -> Option<Pace> + Send,
    ) -> Result<Progress, XdpError> {
        let pinned = Pinned::to(processor)?;
        let (states, paces) = (layout::map(&self.object, "states")?, layout::map(&self.object, "paces")?);
        let program = self.object.progs_mut().find(|program| program.name() == self.function.as_str());
        let program = program.ok_or(XdpError::NoProgram)?;
        let has_ended = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                pinned.free();
                watch_run(&states, &paces, signal, &has_ended, watch);
            });
            let result = loop {
                let input = ProgramInput {
                    data_in: Some(&self.frame),
                    flags: LIVE_FRAMES,
                    repeat: RUNS,
                    ..ProgramInput::default()
                };
                match program.test_run(input) {
                    // The runs of a call are over before the plan is: another call goes on.
                    Ok(_) if !progress(&states)?.is_done => {}
                    Ok(_) => break Ok(()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => break Ok(()),
                    Err(error) => break Err(asked("send frames from pages of its own")(error)),
                }
            };
            has_ended.store(true, Ordering::Relaxed);
            result
        });
        result.and_then(|()| progress(&states))
    }
}

/// Looks at a run until it has ended, and ends the call of the kernel once all is sent.
fn watch_run(
    states: &MapHandle,
    paces: &MapHandle,
    signal: Signal,
    has_ended: &AtomicBool,
    mut watch: impl FnMut(Progress) -> Option<Pace>,
) {
    while !has_ended.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        let Ok(now) = progress(states) else { return };
        if now.is_done {
            // The process is there: it runs this.
            let _ = kill_process(getpid(), signal);
            continue;
        }
        if let Some(pace) = watch(now) {
            drop(paces.update(&0_u32.to_ne_bytes(), &layout::pace_bytes(pace), MapFlags::ANY));
        }
    }
}

fn progress(states: &MapHandle) -> Result<Progress, XdpError> {
    let found = states.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(asked("read the state of the generator"))?;
    let state = found.and_then(|bytes| State::of_bytes(&bytes)).ok_or(XdpError::NoProgram)?;
    Ok(Progress {
        sent: state.sent,
        bytes: state.bytes,
        time: Duration::from_nanos(state.last.saturating_sub(state.start)),
        is_done: state.is_done,
    })
}

/// A thread at one processor; its end frees it.
struct Pinned(CpuSet);

impl Pinned {
    fn to(processor: usize) -> Result<Self, XdpError> {
        let refused = |_| XdpError::NoProcessor(processor);
        let before = sched_getaffinity(None).map_err(refused)?;
        if processor >= CpuSet::MAX_CPU {
            return Err(XdpError::NoProcessor(processor));
        }
        let mut one = CpuSet::new();
        one.set(processor);
        sched_setaffinity(None, &one).map_err(refused)?;
        Ok(Self(before))
    }

    /// Frees the calling thread.
    fn free(&self) {
        // The set is the one that the thread came with.
        let _ = sched_setaffinity(None, &self.0);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.free();
    }
}

/// Whether the driver of the device sends frames of XDP.
fn check(object: &Object, function: &str, device: &Device) -> Result<(), XdpError> {
    let program = object.progs_mut().find(|program| program.name() == function).ok_or(XdpError::NoProgram)?;
    let found = Xdp::new(program.as_fd()).query(device.index as i32, libbpf_rs::XdpFlags::NONE);
    let found = found.map_err(asked(format!("look at the driver of {}", device.name)))?;
    if found.feature_flags & CAN_SEND == 0 {
        return Err(XdpError::CannotSend(device.name.clone()));
    }
    Ok(())
}
