//! Logins in the browser of this machine, or with a code in another browser.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::Args;
use sallyport_api::{BeginDeviceLogin, ClientToken, ExchangeClientCode, ExchangeDeviceCode, Secret};
use sallyport_client::{ApiClient, ClientError};
use sallyport_net::Trust;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio::sync::Mutex;

use super::{
    callback::{Callback, CallbackAnswer},
    host::{Host, HostArgs},
};
use crate::{
    context::{
        Context, Target,
        credentials::{CredentialsFile, SavedToken},
    },
    failure::{self, Failure, Kind},
    output,
    view::utc,
};

/// How long to wait for the browser.
const BROWSER_TIME: Duration = Duration::from_secs(600);
/// How long a logout at the API may take.
const LOGOUT_TIME: Duration = Duration::from_secs(5);
/// A login that ends within this time counts as ended.
const ENDS_SOON: time::Duration = time::Duration::seconds(10);
/// How many stored logins of the same installation are tried before the browser is opened.
const MAX_TRIED_LOGINS: usize = 8;

/// Options of `client login`.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    #[command(flatten)]
    host: HostArgs,
}

/// Options of `client logout`.
#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The socket [default: all]
    #[arg(long, value_name = "HOST")]
    host: Option<Host>,
}

/// Where a person logs in for a socket.
pub(super) struct LoginEndpoint {
    /// The API.
    pub(super) target: Target,
    /// The socket.
    pub(super) host: Host,
    no_browser: bool,
    /// Locked during a login: one browser at a time.
    logging_in: Mutex<()>,
}

#[derive(Serialize)]
struct LoggedIn {
    host: String,
    email: String,
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
}

/// Logs in, even if there is a login.
pub(super) async fn run(context: &Context, args: LoginArgs) -> anyhow::Result<()> {
    let endpoint = LoginEndpoint::new(context, args.host)?;
    let saved = endpoint.log_in().await?;
    let host = endpoint.host.name.clone();
    let logged_in = LoggedIn { host, email: saved.email, expires_at: saved.expires_at };
    context
        .output
        .data(&logged_in, |it| format!("logged in to {} as {} until {}", it.host, it.email, utc(it.expires_at)))
}

/// A login that did not end, because its API could not be reached.
#[derive(Serialize)]
struct UnendedLogin {
    host: String,
    reason: String,
    #[serde(with = "time::serde::rfc3339")]
    until: OffsetDateTime,
}

/// Deletes stored logins, and ends them at their API. They are deleted in any case.
pub(super) async fn logout(context: &Context, args: LogoutArgs) -> anyhow::Result<()> {
    let mut forgotten = Vec::new();
    CredentialsFile::of_user()?.update(|contents| {
        for (api, profile) in &mut contents.profiles {
            profile.clients.retain(|host, saved| {
                let stays = args.host.as_ref().is_some_and(|wanted| wanted.name != *host);
                if !stays {
                    forgotten.push((api.clone(), host.clone(), saved.clone()));
                }
                stays
            });
        }
    })?;
    let now = OffsetDateTime::now_utc();
    let mut go_on: Vec<UnendedLogin> = Vec::new();
    let mut away: Option<(String, String)> = None;
    for (api, host, saved) in forgotten.iter().filter(|(.., saved)| saved.expires_at > now) {
        let known = away.as_ref().filter(|(at, _)| at == api).map(|(_, reason)| reason.clone());
        let reason = match known {
            Some(reason) => Some(reason),
            None => end(context, api, saved).await,
        };
        if let Some(reason) = reason {
            away = Some((api.clone(), reason.clone()));
            go_on.push(UnendedLogin { host: host.clone(), reason, until: saved.expires_at });
        }
    }
    let hosts: Vec<String> = forgotten.into_iter().map(|(_, host, _)| host).collect();
    context.output.data(&serde_json::json!({ "logged_out": hosts, "not_ended": go_on }), |_| {
        match hosts.as_slice() {
            [] => "not logged in".to_owned(),
            hosts => format!("logged out of {}", hosts.join(", ")),
        }
    })?;
    for login in &go_on {
        context.output.hint(&format!(
            "the login at {} is deleted on this machine, but could not be ended there ({}): the login is valid until \
             {}. A member of the organisation can end it with `sallyport login-session end`",
            login.host,
            output::safe(&login.reason),
            utc(login.until)
        ));
    }
    Ok(())
}

/// Ends a login at its API. Returns why that failed, if so.
async fn end(context: &Context, api: &str, saved: &SavedToken) -> Option<String> {
    let ended = async {
        let client = context.target_at(api)?.client_with(Some(&saved.token))?;
        match client.end_client_login().await {
            // The login had ended already.
            Err(error) if wants_login(&error) => Ok(()),
            answer => answer.map_err(anyhow::Error::from),
        }
    };
    match tokio::time::timeout(LOGOUT_TIME, ended).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("{api} does not answer")),
    }
}

/// Whether the error means that a login is needed.
fn wants_login(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem(problem) if problem.status == 401)
}

impl LoginEndpoint {
    pub(super) fn new(context: &Context, args: HostArgs) -> anyhow::Result<Self> {
        let target = context.target_of_socket(&args.host.name, args.host.port)?;
        Ok(Self { target, host: args.host, no_browser: args.no_browser, logging_in: Mutex::default() })
    }

    /// Calls the API as the person, with a stored login, else after a new one.
    pub(super) async fn ask<T, Asked>(&self, ask: impl Fn(ApiClient) -> Asked + Send) -> anyhow::Result<T>
    where
        Asked: Future<Output = Result<T, ClientError>> + Send,
    {
        let _turn = self.logging_in.lock().await;
        for saved in self.saved()? {
            match ask(self.target.client_with(Some(&saved.token))?).await {
                Err(error) if wants_login(&error) => {}
                answer => return answer.map_err(|error| self.refused(error)),
            }
        }
        let saved = self.log_in().await?;
        let client = self.target.client_with(Some(&saved.token))?;
        ask(client).await.map_err(|error| self.refused(error))
    }

    /// The stored logins that may be valid for this socket: its own first, then others of the same installation, which
    /// may be of the same organisation.
    fn saved(&self) -> anyhow::Result<Vec<SavedToken>> {
        let contents = CredentialsFile::of_user()?.read()?;
        let Some(profile) = contents.profile(&self.target.api) else { return Ok(Vec::new()) };
        let good_until = OffsetDateTime::now_utc() + ENDS_SOON;
        let own = profile.clients.get(&self.host.name);
        let others = profile.clients.iter().filter(|(host, _)| **host != self.host.name).map(|(_, saved)| saved);
        let good = own.into_iter().chain(others).filter(|saved| saved.expires_at > good_until);
        Ok(good.take(MAX_TRIED_LOGINS).cloned().collect())
    }

    /// The error, with the socket's name.
    fn refused(&self, error: ClientError) -> anyhow::Error {
        match &error {
            ClientError::Problem(problem) if problem.status == 403 => {
                Failure::new(Kind::NotLoggedIn, problem.to_string())
                    .next(format!("log in as another person with `sallyport client login --host {}`", self.host.name))
                    .into()
            }
            _ => failure::about(error, &self.host.name),
        }
    }

    /// Logs the person in, and stores the login.
    async fn log_in(&self) -> anyhow::Result<SavedToken> {
        let client = self.target.client_with(None)?;
        let token = if self.no_browser { self.by_code(&client).await? } else { self.by_browser(&client).await? };
        let saved = SavedToken { email: token.email, token: token.token, expires_at: token.expires_at };
        let now = OffsetDateTime::now_utc();
        let trust = &self.target.trust;
        CredentialsFile::of_user()?.update(|contents| {
            let profile = contents.profiles.entry(self.target.api.to_string()).or_default();
            profile.clients.retain(|_, saved| saved.expires_at > now);
            profile.clients.insert(self.host.name.clone(), saved.clone());
            // The next program, which ssh starts, uses the same trust.
            let is_of_file = matches!(trust, Trust::Ca(_) | Trust::CaAndSystem(_));
            if is_of_file && profile.trust() == Trust::System && profile.set_trust(trust).is_err() {
                tracing::debug!("the path of the root certificate is not kept");
            }
        })?;
        Ok(saved)
    }

    async fn by_browser(&self, client: &ApiClient) -> anyhow::Result<ClientToken> {
        // Checks the API first, so that a wrong address shows here and not in a browser.
        client.info().await?;
        let (state, verifier) = (random_text()?, random_text()?);
        let callback = Callback::open(state.clone()).await.context("cannot open a port of this machine")?;
        let redirect_uri = callback.address().context("cannot open a port of this machine")?;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let login = self.login_url()?;
        let query = [
            ("response_type", "code"),
            ("client_id", "sallyport"),
            ("redirect_uri", &redirect_uri),
            ("state", &state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("host", &self.host.name),
        ];
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", query_value(value))).collect();
        let url = format!("{login}/client?{}", query.join("&"));
        let opened = open_browser(&url);
        let how = if opened {
            "waiting for the browser; if none opens, go to"
        } else {
            "log in with a browser of this machine at"
        };
        output::note(&format!("{how}\n  {url}"));
        let brought = tokio::time::timeout(BROWSER_TIME, callback.wait()).await.map_err(|_| {
            Failure::new(Kind::NotLoggedIn, "nobody logged in within ten minutes")
                .next("with a browser on another machine, add --no-browser")
        })?;
        match brought.context("the browser cannot be waited for")? {
            CallbackAnswer::Denied => {
                Err(Failure::new(Kind::NotLoggedIn, "the login was refused in the browser").into())
            }
            CallbackAnswer::Code(code) => {
                let code = ExchangeClientCode {
                    code: Secret::from(code),
                    code_verifier: Secret::from(verifier),
                    redirect_uri,
                };
                Ok(client.exchange_client_code(&code).await?)
            }
        }
    }

    async fn by_code(&self, client: &ApiClient) -> anyhow::Result<ClientToken> {
        let begin = BeginDeviceLogin { host: self.host.name.clone() };
        let login = client.begin_device_login(&begin).await.map_err(|error| failure::about(error, &self.host.name))?;
        output::note(&format!(
            "go to {} with any browser, and type the code\n  {}",
            output::safe(&login.verification_uri),
            output::safe(&login.user_code)
        ));
        let mut interval = Duration::from_secs(u64::from(login.interval.clamp(1, 60)));
        let end = tokio::time::Instant::now() + Duration::from_secs(u64::from(login.expires_in));
        let question = ExchangeDeviceCode { device_code: login.device_code };
        loop {
            tokio::time::sleep(interval).await;
            let error = match client.exchange_device_code(&question).await {
                Ok(token) => return Ok(token),
                Err(error) => error,
            };
            let code = if let ClientError::Problem(problem) = &error { problem.code.as_str() } else { "" };
            match code {
                "authorization-pending" if tokio::time::Instant::now() < end => {}
                // RFC 8628 section 3.5.
                "slow-down" => interval += Duration::from_secs(5),
                "access-denied" => {
                    return Err(Failure::new(Kind::NotLoggedIn, "the login was refused in the browser").into());
                }
                "authorization-pending" | "expired-code" => {
                    return Err(Failure::new(Kind::NotLoggedIn, "nobody logged in within ten minutes").into());
                }
                _ => return Err(error.into()),
            }
        }
    }

    /// The URL of the login host.
    fn login_url(&self) -> anyhow::Result<String> {
        let authority = self.target.api.authority();
        let domain = authority.strip_prefix("api.").ok_or_else(|| {
            Failure::usage(format!("{} is not the address of an API: it begins with api.", self.target.api))
        })?;
        Ok(format!("https://login.{domain}"))
    }
}

/// The text as the value of a query parameter (RFC 3986 section 2.1).
fn query_value(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() + 16), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

/// 256 random bits as 43 letters, digits, `-` and `_`.
fn random_text() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("there are no random numbers: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Opens the URL in the user's browser. Returns whether a program was started.
fn open_browser(url: &str) -> bool {
    let program = std::env::var_os("BROWSER").filter(|program| !program.is_empty());
    let program = program.unwrap_or_else(|| if cfg!(target_os = "macos") { "open".into() } else { "xdg-open".into() });
    let started =
        Command::new(program).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match started {
        Ok(mut child) => {
            // The child must be waited for.
            std::thread::spawn(move || drop(child.wait()));
            true
        }
        Err(_) => false,
    }
}
