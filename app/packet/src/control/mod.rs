//! What control knows of a site, followed by a balancer. Uses the API's client, and the configuration of core/packet.

mod egress;
mod known;
mod plan;
mod probes;

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use sallyport_api::Secret;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::note,
};
use sallyport_client::{ApiAddress, ApiClient, Auth, ClientConfig, ClientError};
use sallyport_net::{Outbound, Trust};
use sallyport_packet_model::balance::BalanceConfig;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

use self::{egress::add_egress, known::Known, plan::plan, probes::Probes};

/// The longest token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4_096;
/// The longest state file, in bytes.
const MAX_STATE_BYTES: u64 = 4 << 20;
/// The name of this program at the API.
const AGENT: &str = concat!("sallyport-packet/", env!("CARGO_PKG_VERSION"));

/// Where a balancer asks for its edges and services.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Control")]
pub(crate) struct ControlArgs {
    /// Take the edges and the services of a site from control, at this address of its API
    #[arg(long, value_name = "URL", requires_all = ["token_file", "site"])]
    control: Option<ApiAddress>,
    /// The file with an API token of the account that owns the installation, with all scopes
    #[arg(long, value_name = "FILE", requires = "control")]
    token_file: Option<PathBuf>,
    /// The site that this machine balances: a region
    #[arg(long, value_name = "SITE", requires = "control")]
    site: Option<String>,
    /// The file that keeps what control said last, for a start while control is away
    #[arg(long, value_name = "FILE", requires = "control", default_value = "/var/lib/sallyport/balancer.json")]
    state: PathBuf,
}

/// The settings of a site.
#[derive(Debug, Clone)]
pub(crate) struct SiteOptions {
    address: ApiAddress,
    token_file: PathBuf,
    site: String,
    state: PathBuf,
    ca: Option<PathBuf>,
}

impl ControlArgs {
    /// The site that is asked for; `None` without `--control`.
    pub(crate) fn site(&self, ca: Option<PathBuf>) -> Option<SiteOptions> {
        Some(SiteOptions {
            address: self.control.clone()?,
            token_file: self.token_file.clone()?,
            site: self.site.clone()?,
            state: self.state.clone(),
            ca,
        })
    }
}

/// A site, followed until this is dropped.
pub(crate) struct Site {
    known: watch::Receiver<Known>,
    /// Notified when control or an edge has news.
    news: Arc<Notify>,
    probes: Probes,
    follower: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Site {
    /// Follows a site, and looks at it each `interval`.
    ///
    /// # Errors
    /// Control does not answer, and there is no state file of the site.
    pub(crate) async fn follow(options: SiteOptions, interval: Duration) -> Result<Self, Failure> {
        let asked = options.ask().await;
        let (known, problem) = match asked {
            Ok(said) => {
                let known = match options.kept() {
                    Some(kept) => kept.believing(said),
                    None => said,
                };
                options.keep(&known)?;
                (known, None)
            }
            Err(problem) => match options.kept() {
                Some(kept) => (kept, Some(problem)),
                None => return Err(problem),
            },
        };
        if let Some(problem) = &problem {
            let file = options.state.display();
            note(&format!("{}; the balancer begins with what {file} has", problem.message));
        }
        let sender = watch::Sender::new(known);
        let known = sender.subscribe();
        let news = Arc::new(Notify::new());
        let probes = Probes::start(known.clone(), interval, news.clone());
        let said = problem.map(|problem| problem.message);
        let told = news.clone();
        let follower = tokio::spawn(async move { options.follow(&sender, interval, said, &told).await });
        Ok(Self { known, news, probes, follower })
    }

    /// Waits until control or an edge has news.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// What this machine is to do now. `own` are its addresses.
    pub(crate) fn config(&mut self, base: &BalanceConfig, own: &BTreeSet<IpAddr>) -> BalanceConfig {
        let known = self.known.borrow_and_update().clone();
        let mut config = plan(base, &known.balancer, own, |edge| self.probes.is_up(edge));
        add_egress(&mut config, &known.balancer.site, &known.egress_slices, &known.other_sites);
        config
    }
}

impl SiteOptions {
    /// The site, as control knows it now.
    async fn ask(&self) -> Result<Known, Failure> {
        let token = token_of(&self.token_file)?;
        let trust = self.ca.clone().map_or(Trust::System, Trust::Ca);
        let config = ClientConfig {
            address: self.address.clone(),
            trust,
            outbound: Outbound::default(),
            auth: Auth::Token(token),
            agent: AGENT.to_owned(),
        };
        let client = ApiClient::new(config).map_err(|error| self.failure(&error))?;
        let balancer = client.balancer(&self.site).await.map_err(|error| self.failure(&error))?;
        let egress_slices = client.egress_slices().await.map_err(|error| self.failure(&error))?;
        // Without egress addresses, no packet goes from one site to another.
        let mut other_sites = if egress_slices.is_empty() {
            Vec::new()
        } else {
            client.balancers().await.map_err(|error| self.failure(&error))?
        };
        other_sites.retain(|other| other.site != self.site);
        Ok(Known { balancer, egress_slices, other_sites })
    }

    fn failure(&self, error: &ClientError) -> Failure {
        let site = &self.site;
        match error.status() {
            Some(404) => Failure::new(Kind::NotFound, format!("the site {site} has no balancer at {}", self.address))
                .next(format!("`sallyport balancer set {site} --address ADDR --from ADDR` gives it one")),
            Some(401) => Failure::new(Kind::NotLoggedIn, format!("control refuses the token: {error}")),
            Some(403) => Failure::new(Kind::NotAllowed, format!("control refuses the token: {error}")),
            Some(status) if status < 500 => Failure::new(Kind::Refused, error.to_string()),
            _ => Failure::new(Kind::Unreachable, format!("control is away: {error}")),
        }
    }

    /// Asks again and again. What control said last counts while it is away.
    async fn follow(&self, sender: &watch::Sender<Known>, interval: Duration, mut said: Option<String>, news: &Notify) {
        loop {
            tokio::time::sleep(interval).await;
            match self.ask().await {
                Ok(answer) => {
                    if said.take().is_some() {
                        note("control answers again");
                    }
                    let now = sender.borrow().believing(answer);
                    let kept = if *sender.borrow() == now { Ok(()) } else { self.keep(&now) };
                    if let Err(failure) = kept {
                        note(&failure.message);
                    }
                    if sender.send_if_modified(|known| std::mem::replace(known, now.clone()) != now) {
                        news.notify_one();
                    }
                }
                Err(failure) if said.as_ref() != Some(&failure.message) => {
                    note(&format!("{}; the balancer goes on with what it knew", failure.message));
                    said = Some(failure.message);
                }
                Err(_) => {}
            }
            if sender.is_closed() {
                return;
            }
        }
    }

    /// What the state file has, if that is of this site.
    fn kept(&self) -> Option<Known> {
        let bytes = read(&self.state, MAX_STATE_BYTES).ok()?;
        let known: Known = serde_json::from_slice(&bytes).ok()?;
        (known.balancer.site == self.site).then_some(known)
    }

    /// Writes the state file as a whole.
    fn keep(&self, known: &Known) -> Result<(), Failure> {
        let file = &self.state;
        let write = || -> std::io::Result<()> {
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            let draft = file.with_extension("new");
            // In a folder where others may write, the name can be a link of theirs to any file.
            drop(fs::remove_file(&draft));
            let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            made.write_all(&serde_json::to_vec(known)?)?;
            made.sync_all()?;
            fs::rename(&draft, file)
        };
        write().map_err(|error| {
            let failure = Failure::new(Kind::Failed, format!("cannot write {}: {error}", file.display()));
            failure.next("name another file with --state")
        })
    }
}

/// The bytes of a file that is not too long.
fn read(file: &Path, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(std::io::Error::other(format!("it is longer than {max} bytes")));
    }
    Ok(bytes)
}

/// The token in a file.
fn token_of(file: &Path) -> Result<Secret, Failure> {
    let name = file.display();
    let bytes = read(file, MAX_TOKEN_BYTES)
        .map_err(|error| Failure::new(Kind::Failed, format!("the token in {name} cannot be read: {error}")))?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if text.is_empty() || text.contains(|c: char| c.is_control() || c == ' ') {
        let failure = Failure::usage(format!("{name} has no API token: it is one word on one line"));
        return Err(failure.next("`sallyport token create NAME --scope all` creates one"));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &Path) -> SiteOptions {
        SiteOptions {
            // Nothing listens at the discard port.
            address: "https://127.0.0.1:9".parse().unwrap(),
            token_file: folder.join("token"),
            site: "eu".to_owned(),
            state: folder.join("made/state.json"),
            ca: None,
        }
    }

    #[tokio::test]
    async fn a_start_without_control_and_without_a_file_fails_and_with_the_file_it_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let interval = Duration::from_millis(10);
        let failure = |result: Result<Site, Failure>| result.err().unwrap().message;
        assert!(failure(Site::follow(options.clone(), interval).await).contains("cannot be read"));
        fs::write(&options.token_file, "two words").unwrap();
        assert!(failure(Site::follow(options.clone(), interval).await).contains("one word on one line"));
        fs::write(&options.token_file, "spt_x\n").unwrap();
        assert!(failure(Site::follow(options.clone(), interval).await).contains("control is away"));
        options.keep(&known::tests::known()).unwrap();
        let mut site = Site::follow(options.clone(), interval).await.unwrap();
        let config = site.config(&BalanceConfig::default(), &BTreeSet::new());
        assert_eq!(config.edges.len(), 2);
        // The file of another site is of no use.
        let other = SiteOptions { site: "us".to_owned(), ..options };
        assert!(failure(Site::follow(other, interval).await).contains("control is away"));
    }
}
