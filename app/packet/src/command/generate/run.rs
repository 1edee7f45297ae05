//! Runs of the generator.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::{Duration, Instant},
};

use sallyport_cli::{
    failure::{Failure, Kind},
    output::Output,
};
use sallyport_packet_model::generate::{Pace, Rate, Traffic};
use sallyport_xdp::{
    Namespace, Visit, XdpError,
    generate::{
        Engine, Generator, MAX_SENDERS, Plan, Progress, Receipt, Receiver, Source, check_processors, has_generator,
    },
    kernel::{Device, Kernel},
    require_root,
};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    args::{GenerateArgs, To},
    next_hop, recorded, search,
    view::{RunView, line},
};
use crate::command::{device_of, kernel};

/// The share of the rate that a ramp starts at.
const RAMP_START: f64 = 0.05;
/// How long frames may be under way once all are sent.
const SETTLE: Duration = Duration::from_secs(5);
/// How long no further one arrives before the others are lost.
const QUIET: Duration = Duration::from_millis(250);
/// How often the receiver is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// The devices and addresses of all runs of a command.
pub(super) struct Setting<'a> {
    pub(super) output: Output,
    pub(super) args: &'a GenerateArgs,
    pub(super) device: Device,
    pub(super) receiver: Option<(String, Receiver)>,
    macs: Option<([u8; 6], [u8; 6])>,
    processors: Vec<usize>,
    engine: Engine,
}

/// One run.
pub(super) struct Run {
    pub(super) source: Source,
    pub(super) rate: Option<Rate>,
    pub(super) ramp: Option<Duration>,
    pub(super) end: (Option<u64>, Option<Duration>),
}

/// Generates, as the arguments say.
pub(crate) async fn generate(output: Output, args: GenerateArgs) -> anyhow::Result<()> {
    if !has_generator() {
        return Err(XdpError::NoProgram.into());
    }
    let (kernel, devices) = kernel().await?;
    let device = device_of(&devices, &args.dev)?.clone();
    if !device.is_up {
        return Err(Failure::new(Kind::Refused, format!("{0} is down: `ip link set {0} up`", device.name)).into());
    }
    let namespace = args.receive.receive_netns.as_deref().map(Namespace::open).transpose()?;
    if let (Some(name), None) = (&args.receive.receive_dev, &namespace) {
        device_of(&devices, name)?;
    }
    // A frame of a file may have a tag.
    let most = Traffic::most_size(device.mtu, true) - sallyport_packet_model::generate::CHECK_SEQUENCE;
    let source = match &args.what.pcap {
        Some(path) => Source::Records(recorded::read(path, most.into())?.into()),
        None => Source::Traffic(args.what.traffic(device.mtu)?),
    };
    let processors = args.when.processors()?;
    if processors.len() > 1 && matches!(source, Source::Records(_)) {
        return Err(Failure::usage("one processor sends the frames of a file, in their order: name one").into());
    }
    require_root()?;
    check_processors(&processors)?;
    let macs = macs(&kernel, &device, &args, &source).await?;
    let receiver = match &args.receive.receive_dev {
        Some(name) => Some((name.clone(), receiver(name, namespace.as_ref()).await?)),
        None => None,
    };
    let engine = args.when.engine.into();
    let setting = Setting { output, args: &args, device, receiver, macs, processors, engine };
    // Handled, so that a call of the kernel ends early and nothing is left behind.
    let _signals = [SignalKind::user_defined1(), SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    if args.receive.find_rate {
        return search::find(&setting, source);
    }
    let has_stamps = matches!(source, Source::Traffic(_));
    let recorded = match &source {
        Source::Records(recording) => Some(recording.frames.len()),
        Source::Traffic(_) => None,
    };
    let run = Run { source, rate: args.when.rate, ramp: args.when.ramp, end: args.when.end(recorded) };
    let (sent, receipt) = setting.run(run)?;
    let received = setting.receiver.as_ref().map(|(name, _)| name.as_str()).zip(receipt);
    let view = RunView::of(&setting.device.name, setting.processors.len(), sent, received, has_stamps);
    output.data(&view, RunView::table)
}

/// Puts a receiver at the device of this name, in that namespace or in the own one.
async fn receiver(name: &str, namespace: Option<&Namespace>) -> anyhow::Result<Receiver> {
    let visit = namespace.map(Namespace::enter).transpose()?;
    // Sockets and programs belong to the namespace that the thread is in when it makes them.
    let (_kernel, devices) = kernel().await?;
    let device = device_of(&devices, name)?;
    if !device.is_up {
        return Err(Failure::new(Kind::Refused, format!("{name} is down: `ip link set {name} up`")).into());
    }
    let receiver = Receiver::attach(device)?;
    visit.map_or(Ok(()), Visit::leave)?;
    Ok(receiver)
}

/// The addresses of the link, from and to.
async fn macs(
    kernel: &Kernel,
    device: &Device,
    args: &GenerateArgs,
    source: &Source,
) -> anyhow::Result<Option<([u8; 6], [u8; 6])>> {
    let to = match (args.to, source) {
        (None, _) => return Ok(None),
        (Some(To::Mac(mac)), _) => mac,
        (Some(To::Auto), Source::Traffic(traffic)) => next_hop::resolve(kernel, device, traffic.dest.first).await?,
        (Some(To::Auto), Source::Records(_)) => {
            return Err(Failure::usage("--to auto has no destination to go by with --pcap: name a MAC").into());
        }
    };
    Ok(Some((device.mac, to)))
}

impl Setting<'_> {
    /// Sends, and waits for what arrives.
    pub(super) fn run(&self, run: Run) -> Result<(Progress, Option<Receipt>), XdpError> {
        let Run { source, rate, ramp, end: (count, duration) } = run;
        let speed = self.args.what.speed();
        let is_all = matches!(source, Source::Records(_));
        // The last bits number the senders.
        let id = RandomState::new().build_hasher().finish() as u32 & !(MAX_SENDERS as u32 - 1);
        let start = if ramp.is_some() { RAMP_START } else { 1.0 };
        let pace = rate.map_or(Pace::default(), |rate| rate.scaled(start).pace());
        let plan = Plan { source, macs: self.macs, run: id, count, duration, pace, speed };
        let generator = Generator::load(&plan, &self.device, self.engine, self.processors.len())?;
        if let Some((_, receiver)) = &self.receiver {
            receiver.expect(id, is_all)?;
        }
        let mut watch = Watch::new(self, rate.zip(ramp));
        let sent = generator.run(&self.processors, |now| watch.look(now))?;
        let receipt = self.receiver.as_ref().map(|(_, receiver)| settled(receiver, sent.sent)).transpose()?;
        Ok((sent, receipt))
    }
}

/// Looks at a run: tells progress, and raises the rate.
struct Watch<'a> {
    setting: &'a Setting<'a>,
    ramp: Option<(Rate, Duration)>,
    started: Instant,
    told: Instant,
    before: Progress,
}

impl<'a> Watch<'a> {
    fn new(setting: &'a Setting<'a>, ramp: Option<(Rate, Duration)>) -> Self {
        let now = Instant::now();
        Self { setting, ramp, started: now, told: now, before: Progress::default() }
    }

    fn look(&mut self, now: Progress) -> Option<Pace> {
        if self.told.elapsed() >= self.setting.args.when.interval {
            self.told = Instant::now();
            let receipt = self.setting.receiver.as_ref().and_then(|(_, receiver)| receiver.receipt().ok());
            let received = receipt.map(|receipt| receipt.packets);
            self.setting.output.hint(&line(self.started.elapsed(), now, self.before, received));
            self.before = now;
        }
        let (rate, ramp) = self.ramp?;
        let part = (self.started.elapsed().as_secs_f64() / ramp.as_secs_f64()).clamp(RAMP_START, 1.0);
        if part >= 1.0 {
            self.ramp = None;
        }
        Some(rate.scaled(part).pace())
    }
}

/// Waits until as many have arrived as were sent, or no further one comes.
fn settled(receiver: &Receiver, sent: u64) -> Result<Receipt, XdpError> {
    let end = Instant::now() + SETTLE;
    let (mut last, mut changed) = (receiver.receipt()?, Instant::now());
    while last.packets < sent && changed.elapsed() < QUIET && Instant::now() < end {
        std::thread::sleep(LOOK);
        let now = receiver.receipt()?;
        if now.packets != last.packets {
            changed = Instant::now();
        }
        last = now;
    }
    Ok(last)
}
