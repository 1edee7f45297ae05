//! The context of a command: its API, trust, login, proxy and output; and the names that completion offers.
//! Uses `view`, `args`, `machine` and `failure`.

pub(crate) mod candidates;
pub(crate) mod credentials;
mod global;
pub(crate) mod network;

use std::{path::PathBuf, sync::Arc};

use sallyport_api::Secret;
use sallyport_client::{ApiAddress, ApiClient, Auth, ClientConfig};
use sallyport_model::Email;
use sallyport_net::Trust;
use time::UtcOffset;

pub(crate) use self::global::Global;
use self::{
    credentials::{Contents, CredentialsError, CredentialsFile, Profile, SavedOrganisation, SavedSession},
    network::{Network, ProxyChoice},
};
use crate::{
    failure::{Failure, Kind},
    machine::{
        processes,
        server_note::{self, ServerNote},
    },
    output::Output,
};

/// Name and version of this program, for `User-Agent` fields.
pub(crate) const AGENT: &str = concat!("sallyport/", env!("CARGO_PKG_VERSION"));

/// What every command needs.
pub(crate) struct Context {
    /// How to print.
    pub(crate) output: Output,
    /// The time zone of the machine.
    pub(crate) offset: UtcOffset,
    /// The root certificate that was named with `--ca`.
    pub(crate) ca: Option<PathBuf>,
    api: Option<String>,
    proxy: Option<ProxyChoice>,
    token: Option<Secret>,
    /// The organisation, by id or name.
    organisation: Option<String>,
}

/// An API, and how to trust it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Where it is.
    pub(crate) api: ApiAddress,
    /// Which certificates are trusted.
    pub(crate) trust: Trust,
    /// How it is reached.
    pub(crate) network: Network,
}

impl Context {
    /// The context that the options make.
    pub(crate) fn new(global: Global, output: Output, offset: UtcOffset) -> Self {
        Self {
            output,
            offset,
            ca: global.ca.filter(|path| !path.as_os_str().is_empty()),
            api: global.api.filter(|text| !text.is_empty()),
            proxy: global.proxy,
            token: global.token.filter(|text| !text.is_empty()).map(Secret::from),
            organisation: global.organisation.filter(|text| !text.is_empty()),
        }
    }

    /// The API: that of `--api`, else that of the last login, else the local one.
    ///
    /// # Errors
    /// There is none, or its address is not valid.
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        let contents = match CredentialsFile::of_user() {
            Ok(file) => file.read()?,
            Err(CredentialsError::NoHome) => Contents::default(),
            Err(error) => return Err(error.into()),
        };
        let mut target = choose(self.api.as_deref(), self.ca.clone(), &contents, &server_note::by_preference())?;
        target.network = Network::new(self.proxy.clone())?;
        Ok(target)
    }

    /// The command `sallyport login` for this API, for advice.
    pub(crate) fn login_command(&self, email: &Email) -> String {
        let api = self.api.iter().map(|api| format!(" --api {api}"));
        let ca = self.ca.iter().map(|file| format!(" --ca {}", file.display()));
        format!("sallyport login{} --email {email}", api.chain(ca).collect::<String>())
    }

    /// The API at which persons log in to this socket: the configured one if the socket is under its domain, else that
    /// of the socket's domain.
    ///
    /// # Errors
    /// Its address is not valid.
    pub(crate) fn target_of_socket(&self, host: &str, port: Option<u16>) -> anyhow::Result<Target> {
        let domain = host.split_once('.').map_or(host, |(_, domain)| domain);
        let meant = self.target();
        if self.api.is_some() {
            return meant;
        }
        match meant {
            Ok(target)
                if target.api.host() == format!("api.{domain}")
                    && port.is_none_or(|port| port == target.api.port()) =>
            {
                return Ok(target);
            }
            _ => {}
        }
        let contents = CredentialsFile::of_user().and_then(|file| file.read()).unwrap_or_default();
        let api = match port {
            Some(port) if port != 443 => format!("https://api.{domain}:{port}"),
            _ => format!("https://api.{domain}"),
        };
        let mut target = choose(Some(&api), self.ca.clone(), &contents, &server_note::by_preference())?;
        target.network = Network::new(self.proxy.clone())?;
        Ok(target)
    }

    /// The API at this address, with the trust of its last login.
    ///
    /// # Errors
    /// The address is not valid.
    pub(crate) fn target_at(&self, api: &str) -> anyhow::Result<Target> {
        let contents = CredentialsFile::of_user().and_then(|file| file.read()).unwrap_or_default();
        let mut target = choose(Some(api), self.ca.clone(), &contents, &server_note::by_preference())?;
        target.network = Network::new(self.proxy.clone())?;
        Ok(target)
    }

    /// A client without a login.
    ///
    /// # Errors
    /// There is no API, or the trusted certificates cannot be used.
    pub(crate) fn anonymous_client(&self, target: &Target) -> anyhow::Result<ApiClient> {
        client(target, Auth::Anonymous)
    }

    /// A client with the login, for an organisation: the given one, else that of the API token, else the one chosen
    /// with `organisation use`.
    ///
    /// # Errors
    /// There is no API, or the trusted certificates cannot be used.
    pub(crate) fn client(&self, target: &Target) -> anyhow::Result<ApiClient> {
        let client = self.client_of_self(target)?;
        match (&self.organisation, &self.token) {
            (Some(named), _) => Ok(client.for_organisation(named)?),
            (None, Some(_)) => Ok(client),
            (None, None) => match self.chosen(target) {
                Some(chosen) => Ok(client.for_organisation(&chosen.id.to_string())?),
                None => Ok(client),
            },
        }
    }

    /// A client with the login, for the account's own things in any organisation: account, ssh keys, invitations.
    ///
    /// # Errors
    /// There is no API, or the trusted certificates cannot be used.
    pub(crate) fn client_of_self(&self, target: &Target) -> anyhow::Result<ApiClient> {
        let auth = match &self.token {
            Some(token) => Auth::Token(token.clone()),
            None => match CredentialsFile::of_user() {
                Ok(file) => Auth::Saved(Arc::new(SavedSession { file, api: target.api.clone() })),
                Err(_) => Auth::Anonymous,
            },
        };
        client(target, auth)
    }

    /// The chosen organisation for this API.
    fn chosen(&self, target: &Target) -> Option<SavedOrganisation> {
        let contents = CredentialsFile::of_user().and_then(|file| file.read()).ok()?;
        contents.profile(&target.api)?.organisation.clone()
    }
}

impl Target {
    /// A client with this token, or without one.
    ///
    /// # Errors
    /// The trusted certificates cannot be used.
    pub(crate) fn client_with(&self, token: Option<&Secret>) -> anyhow::Result<ApiClient> {
        client(self, token.map_or(Auth::Anonymous, |token| Auth::Token(token.clone())))
    }
}

fn client(target: &Target, auth: Auth) -> anyhow::Result<ApiClient> {
    if let Trust::Ca(root) | Trust::CaAndSystem(root) = &target.trust
        && server_note::is_root_of_ended(root)
    {
        let ended = format!("{} is the API of a server on this machine that does not run now", target.api);
        let step = "start it: `sudo systemctl start sallyport.service`, or `sallyport up`";
        return Err(Failure::new(Kind::Unreachable, ended).next(step).into());
    }
    let config = ClientConfig {
        address: target.api.clone(),
        trust: target.trust.clone(),
        outbound: target.network.to(target.api.host(), target.api.port()),
        auth,
        agent: AGENT.to_owned(),
    };
    Ok(ApiClient::new(config)?)
}

/// The failure if no API is configured or found; a running one of another user is mentioned.
fn no_api() -> Failure {
    let others = processes::running();
    let other = others.iter().find(|one| one.is_of_other && matches!(one.role, "up" | "control"));
    match other {
        Some(other) => Failure::new(
            Kind::Unreachable,
            format!(
                "the `sallyport {}` of {} runs on this machine (process {}), and does not show its address to other \
                 users",
                other.role, other.user, other.pid
            ),
        )
        .next(
            "ask for its address and the fingerprint of its root, which it logs when it is ready: `sallyport login \
             --api URL --ca-fingerprint sha256:... --email you@example.com`",
        ),
        None => Failure::new(Kind::Unreachable, "no API is known: no `sallyport up` of yours runs on this machine")
            .next("start `sallyport up`, or give the address of an API with --api URL"),
    }
}

/// The API and its trust. `notes` has the servers of this machine, first the one to take if no API is named.
fn choose(
    api: Option<&str>,
    ca: Option<PathBuf>,
    contents: &Contents,
    notes: &[ServerNote],
) -> Result<Target, Failure> {
    let first = notes.first().map(|note| note.api.as_str());
    let text = api.or(contents.current.as_deref()).or(first).ok_or_else(no_api)?;
    let api: ApiAddress = text.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    let of_local = notes.iter().find(|note| note.is_of(&api));
    let trust = match (ca, of_local) {
        (Some(ca), _) => Trust::Ca(ca),
        (None, Some(local)) if local.public_names.is_some() => Trust::CaAndSystem(local.ca.clone()),
        (None, Some(local)) => Trust::Ca(local.ca.clone()),
        (None, None) => contents.profile(&api).map_or(Trust::System, Profile::trust),
    };
    Ok(Target { api, trust, network: Network::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::server_note::PublicNames;

    fn local() -> ServerNote {
        ServerNote {
            api: "https://api.localhost:8443".into(),
            ca: "/data/ca.pem".into(),
            pid: 1,
            ..ServerNote::default()
        }
    }

    fn logged_in(api: &str, profile: Profile) -> Contents {
        Contents { current: Some(api.into()), profiles: [(api.to_owned(), profile)].into() }
    }

    #[test]
    fn the_flag_goes_before_the_login_and_the_login_before_the_local_one() {
        let saved = logged_in("https://b.example", Profile::default());
        let api = |flag, contents: &Contents, notes: &[ServerNote]| {
            choose(flag, None, contents, notes).map(|target| target.api.to_string())
        };
        assert_eq!(api(Some("https://a.example"), &saved, &[local()]).unwrap(), "https://a.example");
        assert_eq!(api(None, &saved, &[local()]).unwrap(), "https://b.example");
        assert_eq!(api(None, &Contents::default(), &[local()]).unwrap(), "https://api.localhost:8443");
        assert_eq!(api(None, &Contents::default(), &[]).unwrap_err().kind, Kind::Unreachable);
        assert_eq!(api(Some("http://a.example"), &saved, &[]).unwrap_err().kind, Kind::Usage);
    }

    #[test]
    fn a_server_of_this_machine_that_has_ended_is_to_be_started() {
        let root = |file: &str| Target {
            api: "https://api.localhost:8443".parse().unwrap(),
            trust: Trust::Ca(file.into()),
            network: Network::default(),
        };
        let why = |file: &str| client(&root(file), Auth::Anonymous).err().map(|error| error.to_string()).unwrap();
        let ended = "https://api.localhost:8443 is the API of a server on this machine that does not run now";
        assert_eq!(why("/run/sallyport/ca-0.pem"), ended);
        assert!(why("/nowhere/ca-0.pem").starts_with("cannot read the root certificate /nowhere/ca-0.pem"));
    }

    #[test]
    fn each_api_is_trusted_by_its_own_root() {
        let pinned = Profile { ca_fingerprint: Some("sha256:aa".into()), ..Profile::default() };
        let saved = logged_in("https://b.example", pinned);
        let trust = |flag: Option<&str>, ca: Option<&str>| {
            choose(flag, ca.map(PathBuf::from), &saved, &[local()]).unwrap().trust
        };
        assert_eq!(trust(None, None), Trust::Pinned("sha256:aa".into()));
        assert_eq!(trust(None, Some("/x.pem")), Trust::Ca("/x.pem".into()));
        assert_eq!(trust(Some("https://API.localhost:8443/"), None), Trust::Ca("/data/ca.pem".into()));
        assert_eq!(trust(Some("https://c.example"), None), Trust::System);
        let public = ServerNote { public_names: Some(PublicNames::default()), ..local() };
        let target = choose(None, None, &Contents::default(), &[public]).unwrap();
        assert_eq!(target.trust, Trust::CaAndSystem("/data/ca.pem".into()));
    }

    #[test]
    fn another_server_here_does_not_change_what_is_trusted() {
        let of_login = "https://api.a.example";
        let public = ServerNote {
            api: of_login.into(),
            ca: "/a/ca.pem".into(),
            pid: 2,
            public_names: Some(PublicNames::default()),
            ..ServerNote::default()
        };
        let both = Trust::CaAndSystem("/a/ca.pem".into());
        let trust = |saved: &Contents, notes: &[ServerNote]| choose(None, None, saved, notes).unwrap().trust;
        let older = Profile { ca: Some("/a/ca.pem".into()), ..Profile::default() };
        let older = logged_in(of_login, older);
        assert_eq!(trust(&older, &[local(), public]), both, "its note is not the first");
        assert_eq!(trust(&older, &[local()]), Trust::Ca("/a/ca.pem".into()));
        let mut profile = Profile::default();
        profile.set_trust(&both).unwrap();
        let saved = logged_in(of_login, profile);
        assert_eq!(trust(&saved, &[local()]), both, "its note is gone");
        assert_eq!(trust(&saved, &[]), both);
    }
}
