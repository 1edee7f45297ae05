//! A run of the generator: senders, each on a thread and a processor of its own.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    pthread::{Pthread, pthread_kill, pthread_self},
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, netdevice::index_to_name, socket_with},
};
use sallyport_packet_model::generate::Pace;

use super::{Plan, layout::State, live::LiveSender, pinned::Pinned, xsk::XskSender};
use crate::{
    XdpError,
    error::{pinned, require_root},
    kernel::Device,
};

/// How often the state is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How long a device may be down before it is removed.
const REMOVAL: Duration = Duration::from_secs(1);
/// After how many looks the device is looked for. The kernel takes frames for one that is gone, without a word.
const LOOKS_FOR_DEVICE: u32 = 50;

/// How frames come to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// A program makes them in pages of the kernel.
    Live,
    /// This process makes them, in memory that it shares with the kernel: AF_XDP.
    Xsk,
}

/// A loaded generator. It sends in the network namespace of the process.
#[derive(Debug)]
pub struct Generator {
    senders: Vec<Sender>,
    device: (u32, String),
}

#[derive(Debug)]
enum Sender {
    Live(LiveSender),
    Xsk(Box<XskSender>),
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
    /// Whether all is sent.
    pub is_done: bool,
}

impl Progress {
    /// Frames a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        // The time is between the first and the last, so one frame is not within.
        self.sent.saturating_sub(1) as f64 / self.time.as_secs_f64().max(1e-9)
    }

    fn of(states: &[State]) -> Self {
        let started = || states.iter().filter(|state| state.sent > 0);
        let first = started().map(|state| state.start).min().unwrap_or_default();
        let last = started().map(|state| state.last).max().unwrap_or_default();
        Self {
            sent: states.iter().map(|state| state.sent).sum(),
            bytes: states.iter().map(|state| state.bytes).sum(),
            time: Duration::from_nanos(last.saturating_sub(first)),
            is_done: states.iter().all(|state| state.is_done),
        }
    }
}

impl Sender {
    fn send(&self, is_stopped: &AtomicBool) -> Result<(), XdpError> {
        match self {
            Self::Live(sender) => sender.send(is_stopped),
            Self::Xsk(sender) => sender.send(is_stopped),
        }
    }

    fn state(&self) -> Result<State, XdpError> {
        match self {
            Self::Live(sender) => sender.state(),
            Self::Xsk(sender) => Ok(sender.state()),
        }
    }

    fn set_pace(&self, pace: Pace) {
        match self {
            Self::Live(sender) => sender.set_pace(pace),
            Self::Xsk(sender) => sender.set_pace(pace),
        }
    }
}

/// The thread of a sender, while it may be signalled.
type Place = Mutex<Option<Pthread>>;

impl Generator {
    /// Makes so many senders for this plan, at most [`super::MAX_SENDERS`], which send by this device.
    ///
    /// # Errors
    /// The kernel does not take the programs, or the device cannot do it.
    pub fn load(plan: &Plan, device: &Device, engine: Engine, senders: usize) -> Result<Self, XdpError> {
        require_root()?;
        let parts = (0..senders).filter_map(|sender| plan.part(sender, senders));
        let sender = |(queue, part): (u32, Plan)| match engine {
            Engine::Live => LiveSender::load(&part, device).map(Sender::Live),
            Engine::Xsk => XskSender::open(part, device, queue).map(|sender| Sender::Xsk(Box::new(sender))),
        };
        let senders = (0..).zip(parts).map(sender).collect::<Result<_, _>>()?;
        Ok(Self { senders, device: (device.index, device.name.clone()) })
    }

    /// Sends, each sender on its processor, until the plan is done or an interrupt or the signal to terminate comes.
    ///
    /// The process handles `SIGUSR1`, by which this ends calls of the kernel. `watch` is called from another thread
    /// every few milliseconds with how far the run is. It may set another pace.
    ///
    /// # Errors
    /// The kernel refuses, or the device is gone.
    pub fn run(
        &self,
        processors: &[usize],
        watch: impl FnMut(Progress) -> Option<Pace> + Send,
    ) -> Result<Progress, XdpError> {
        let refused = |error: nix::Error| pinned("wait for signals")(error.into());
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        let asked = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(refused)?;
        // Threads that begin from here on block them, too.
        signals.thread_block().map_err(refused)?;
        let places: Vec<Place> = self.senders.iter().map(|_| Mutex::default()).collect();
        let (is_stopped, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let result = thread::scope(|scope| {
            scope.spawn(|| self.watch_run(&places, &asked, &is_stopped, &has_ended, watch));
            let mut work = self.senders.iter().zip(&places).zip(processors);
            let first = work.next();
            let is_stopped = &is_stopped;
            let others: Vec<_> = work
                .map(|((sender, place), processor)| scope.spawn(move || drive(sender, place, *processor, is_stopped)))
                .collect();
            let mut result = first.map_or(Ok(()), |((sender, place), cpu)| drive(sender, place, *cpu, is_stopped));
            for other in others {
                let ended = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                result = result.and(ended);
            }
            has_ended.store(true, Ordering::Relaxed);
            result
        });
        signals.thread_unblock().map_err(refused)?;
        // A device that is removed goes down first.
        let end = Instant::now() + REMOVAL;
        while result.is_err() && !self.is_device_gone() && Instant::now() < end {
            thread::sleep(LOOK);
        }
        if self.is_device_gone() {
            return Err(XdpError::NoDevice(self.device.1.clone()));
        }
        result.and_then(|()| self.progress())
    }

    fn is_device_gone(&self) -> bool {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        socket.is_ok_and(|socket| matches!(index_to_name(socket, self.device.0), Err(Errno::NODEV | Errno::NXIO)))
    }

    fn progress(&self) -> Result<Progress, XdpError> {
        let states = self.senders.iter().map(Sender::state).collect::<Result<Vec<_>, _>>()?;
        Ok(Progress::of(&states))
    }

    /// Looks at a run until it has ended, and ends calls of the kernel once their sender is done or all must stop.
    fn watch_run(
        &self,
        places: &[Place],
        asked: &SignalFd,
        is_stopped: &AtomicBool,
        has_ended: &AtomicBool,
        mut watch: impl FnMut(Progress) -> Option<Pace>,
    ) {
        let mut looks = 0_u32;
        while !has_ended.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
            looks = looks.wrapping_add(1);
            let is_gone = looks.is_multiple_of(LOOKS_FOR_DEVICE) && self.is_device_gone();
            if is_gone || asked.read_signal().is_ok_and(|signal| signal.is_some()) {
                is_stopped.store(true, Ordering::Relaxed);
            }
            let Ok(states) = self.senders.iter().map(Sender::state).collect::<Result<Vec<_>, _>>() else {
                is_stopped.store(true, Ordering::Relaxed);
                continue;
            };
            for (place, state) in places.iter().zip(&states) {
                if state.is_done || is_stopped.load(Ordering::Relaxed) {
                    wake(place);
                }
            }
            let now = Progress::of(&states);
            if !now.is_done
                && let Some(pace) = watch(now)
            {
                let part = pace.part(self.senders.len() as u64);
                self.senders.iter().for_each(|sender| sender.set_pace(part));
            }
        }
    }
}

/// Sends on this thread. What fails stops the others.
fn drive(sender: &Sender, place: &Place, processor: usize, is_stopped: &AtomicBool) -> Result<(), XdpError> {
    let set = |thread| place.lock().map(|mut place| *place = thread).unwrap_or_default();
    let result = Pinned::to(processor).and_then(|_pinned| {
        set(Some(pthread_self()));
        let result = sender.send(is_stopped);
        set(None);
        result
    });
    if result.is_err() {
        is_stopped.store(true, Ordering::Relaxed);
    }
    result
}

/// Ends the call of the kernel that the thread is in. The thread is there as long as the place names it.
fn wake(place: &Place) {
    if let Ok(place) = place.lock()
        && let Some(thread) = *place
    {
        let _ = pthread_kill(thread, Signal::SIGUSR1);
    }
}
