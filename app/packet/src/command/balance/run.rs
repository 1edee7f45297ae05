//! `packet balance run`: the balancer, and the process that keeps its tables in step with what is wanted.

use std::time::{Duration, Instant};

use clap::Args;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::{Output, note},
};
use sallyport_packet_model::balance::BalanceConfig;
use sallyport_xdp::{Router, XdpError, balance::Balancer};

use super::{
    metrics,
    state::State,
    up::{self, UpArgs, bring_up, devices_of},
};
use crate::command::kernel;

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet balance run --config balance.toml
  sallyport packet balance run --config balance.toml --metrics /var/lib/node_exporter/balance.prom";

/// How often neighbours are looked for.
const WAKE_EVERY: Duration = Duration::from_secs(5);

/// The arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    up: UpArgs,
    /// Write metrics to this file, as Prometheus reads it
    #[arg(long, value_name = "FILE")]
    metrics: Option<String>,
    /// How often the file is looked at, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    interval: u64,
}

/// Where the wanted configuration comes from.
struct Source {
    args: UpArgs,
    last: Option<BalanceConfig>,
    /// The last problem, which is said once.
    said: Option<String>,
}

impl Source {
    /// The configuration, if it is another one than before. A file that is wrong changes nothing.
    fn next(&mut self) -> Option<BalanceConfig> {
        match self.args.read() {
            Ok(config) if self.last.as_ref() != Some(&config) => {
                (self.last, self.said) = (Some(config.clone()), None);
                Some(config)
            }
            Ok(_) => {
                self.said = None;
                None
            }
            Err(failure) => {
                self.say(failure.message);
                None
            }
        }
    }

    fn say(&mut self, problem: String) {
        if self.said.as_ref() != Some(&problem) {
            note(&format!("the balancer stays as it is: {problem}"));
            self.said = Some(problem);
        }
    }
}

/// Runs the balancer until the process ends. The packets go on then.
pub(super) async fn run(output: Output, balancer: &Balancer, args: RunArgs) -> anyhow::Result<()> {
    let config = args.up.read()?;
    let mut metrics = metrics::Writer::new(args.metrics.clone().or_else(|| config.metrics.clone()))?;
    let Some(_lock) = Router::new(balancer.pins()).follow()? else {
        return Err(Failure::new(Kind::Refused, "another process keeps this balancer in step already").into());
    };
    let (change, state) = bring_up(balancer, config.clone()).await?;
    up::say(output, change, &state).await?;
    output.hint("keeping the tables in step; the programs stay when this process ends");
    let mut source = Source { args: args.up, last: Some(config), said: None };
    let mut woken = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(args.interval)).await;
        if !balancer.is_up() {
            note("the balancer was taken down, so this process ends");
            return Ok(());
        }
        if let Some(config) = source.next()
            && let Err(error) = change_to(balancer, config).await
        {
            source.say(format!("{error:#}"));
            // A command that changes it at this moment is soon over.
            if matches!(error.downcast_ref(), Some(XdpError::Changing)) {
                source.last = None;
            }
        }
        if let Some(state) = State::standing(balancer)? {
            refresh(balancer, &state.config).await?;
            metrics.write(balancer, &state).await?;
            if woken.elapsed() >= WAKE_EVERY {
                up::wake(&state.config);
                woken = Instant::now();
            }
        }
    }
}

/// Changes the tables; the program too, where that is needed.
async fn change_to(balancer: &Balancer, config: BalanceConfig) -> anyhow::Result<()> {
    let standing = State::standing(balancer)?.unwrap_or_default();
    let needs_program = standing.config.dev != config.dev
        || standing.config.connections != config.connections
        || standing.config.source != config.source;
    if needs_program {
        bring_up(balancer, config).await?;
        return Ok(());
    }
    let _change = balancer.change()?;
    // `drain` may have changed it meanwhile.
    let mut state = State::standing(balancer)?.unwrap_or_default().with_config(config);
    let tables = state.compile()?;
    balancer.apply(&tables, &state.to_bytes()?)?;
    up::wake(&state.config);
    Ok(())
}

/// Takes over changed addresses of the devices. A device that is gone comes back by a new start.
async fn refresh(balancer: &Balancer, config: &BalanceConfig) -> anyhow::Result<()> {
    let (_, devices) = kernel().await?;
    if let Ok(wanted) = devices_of(config, &devices) {
        balancer.refresh(&wanted)?;
    }
    Ok(())
}
