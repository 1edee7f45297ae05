//! `packet balance run`: the balancer, and the process that keeps its tables in step with what is wanted.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

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
use crate::{
    command::kernel,
    control::{ControlArgs, Site},
};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet balance run --config balance.toml
  sallyport packet balance run --config balance.toml --metrics /var/lib/node_exporter/balance.prom
  sallyport packet balance run --dev eth0 --control https://api.example.com --token-file token --site eu";

/// How often neighbours are looked for.
const WAKE_EVERY: Duration = Duration::from_secs(5);

/// The arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The file of the balancer; with --control, what control does not know, such as the seed
    #[arg(long, value_name = "FILE", required_unless_present = "control")]
    config: Option<PathBuf>,
    /// The devices by which packets come and go, with native XDP; otherwise those of the file
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    dev: Vec<String>,
    /// Write metrics to this file, as Prometheus reads it
    #[arg(long, value_name = "FILE")]
    metrics: Option<String>,
    /// How often the file, control and the edges are looked at, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    interval: u64,
    #[command(flatten)]
    control: ControlArgs,
}

/// Where the wanted configuration comes from.
struct Source {
    config: Option<PathBuf>,
    dev: Vec<String>,
    /// What control knows, if it is asked.
    site: Option<Site>,
    last: Option<BalanceConfig>,
    /// The last problem, which is said once.
    said: Option<String>,
}

impl Source {
    /// The configuration as it is wanted now.
    async fn read(&mut self) -> Result<BalanceConfig, Failure> {
        let base = match &self.config {
            Some(config) => UpArgs { config: config.clone(), dev: self.dev.clone() }.read()?,
            None if self.dev.is_empty() => {
                return Err(Failure::usage("the balancer has no device").next("name devices by --dev a,b"));
            }
            None => {
                let dev = self.dev.iter().map(|dev| dev.trim().to_owned()).collect();
                BalanceConfig { dev, ..BalanceConfig::default() }
            }
        };
        let Some(site) = &mut self.site else { return Ok(base) };
        let failed = |error: XdpError| Failure::new(Kind::Failed, error.to_string());
        let (kernel, _) = kernel().await.map_err(failed)?;
        let own: BTreeSet<_> =
            kernel.addresses().await.map_err(failed)?.into_iter().map(|(_, address)| address).collect();
        Ok(site.config(&base, &own))
    }

    /// The configuration, if it is another one than before. What is wrong changes nothing.
    async fn next(&mut self) -> Option<BalanceConfig> {
        match self.read().await {
            Ok(config) if self.last.as_ref() != Some(&config) => {
                (self.last, self.said) = (Some(config.clone()), None);
                Some(config)
            }
            Ok(_) => None,
            Err(failure) => {
                self.say(failure.message);
                None
            }
        }
    }

    /// Waits for the next look, or until control or an edge has news.
    async fn wait(&mut self, interval: Duration) {
        let news = async {
            match &self.site {
                Some(site) => site.news().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = news => {}
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
pub(super) async fn run(output: Output, balancer: &Balancer, args: RunArgs, ca: Option<PathBuf>) -> anyhow::Result<()> {
    let interval = Duration::from_millis(args.interval);
    let mut source = Source { config: args.config, dev: args.dev, site: None, last: None, said: None };
    if let Some(site) = args.control.site(ca) {
        source.site = Some(Site::follow(site, interval).await?);
    }
    let config = source.read().await?;
    let mut metrics = metrics::Writer::new(args.metrics.clone().or_else(|| config.metrics.clone()))?;
    let Some(_lock) = Router::new(balancer.pins()).follow()? else {
        return Err(Failure::new(Kind::Refused, "another process keeps this balancer in step already").into());
    };
    let (change, state) = bring_up(balancer, config.clone()).await?;
    up::say(output, change, &state).await?;
    output.hint("keeping the tables in step; the programs stay when this process ends");
    source.last = Some(config);
    let mut woken = Instant::now();
    loop {
        source.wait(interval).await;
        if !balancer.is_up() {
            note("the balancer was taken down, so this process ends");
            return Ok(());
        }
        if let Some(config) = source.next().await
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
