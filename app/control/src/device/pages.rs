//! The pages on which a person agrees to the login of a program.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{OriginalUri, Query, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use sallyport_http::page::Escaped;
use sallyport_identity::Purpose;
use sallyport_model::{LoginSession, SocketRoute};

use super::{
    codes::{format_user_code, parse_user_code},
    grants::{Code, Consent, ConsentPurpose, is_challenge, is_loopback},
};
use crate::{
    login::page::{LoginError, page, written, wrong},
    problem::ApiError,
    request::extract,
    security::{client::ClientAddress, mysocket_client_token::MysocketClient, random},
    state::App,
};

/// The longest `state` of a program, in bytes.
const MAX_STATE_BYTES: usize = 256;
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The form targets of these pages: programs on the person's machine.
const PROGRAMS: &str = "http://127.0.0.1:* http://localhost:*";

/// The same for the original clients, which redirect the browser to a page of their own site. Browsers apply
/// `form-action` to redirects too.
const MYSOCKET_PROGRAMS: &str = "http://127.0.0.1:* http://localhost:* https:";

fn bad(sentence: impl AsRef<str>) -> LoginError {
    let mut sentence = format!("{}.", sentence.as_ref());
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    LoginError::new(StatusCode::BAD_REQUEST, "That did not work", &sentence)
}

/// The parameters of a query or a form, none twice.
fn parameters(query: &str) -> Result<HashMap<String, String>, LoginError> {
    let uri: Uri = format!("/?{query}").parse().map_err(|_| bad("the address is not valid"))?;
    let Query(pairs) =
        Query::<Vec<(String, String)>>::try_from_uri(&uri).map_err(|_| bad("the address is not valid"))?;
    let mut found = HashMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        if found.insert(name.clone(), value).is_some() {
            let name: String = name.chars().take(40).collect();
            return Err(bad(format!("the parameter {name} is given twice")));
        }
    }
    Ok(found)
}

impl App {
    /// Redirects the browser to the login for this socket, and back here.
    fn to_sign_on(&self, host: &str, back: &Uri) -> Response {
        let back = back.path_and_query().map_or("/", |path| path.as_str());
        let to = format!("/sign-on?socket={}&to={}", encoded(host), encoded(back));
        (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
    }

    /// The consent page. Its form has the sealed request.
    fn consent(
        &self,
        session: &LoginSession,
        route: &SocketRoute,
        purpose: ConsentPurpose,
        says: (&str, &str),
    ) -> Result<Response, LoginError> {
        let (path, explanation) = says;
        let programs = if matches!(purpose, ConsentPurpose::Mysocket { .. }) { MYSOCKET_PROGRAMS } else { PROGRAMS };
        let at = self.clock.now().unix_seconds;
        let form = Consent { session: session.id, socket: route.id, purpose, at };
        let form = self.sealer.seal(Purpose::Form, &form, random::bytes().map_err(ApiError::from)?);
        let form = form.ok_or_else(|| ApiError::internal("a form cannot be sealed"))?;
        let host = self.dns_name(&route.name);
        let host = Escaped(&host);
        let email = Escaped(session.person.email.as_str());
        let body = format!(
            "<p>{explanation}</p><p>It requests access to <code>{host}</code>, and to the other services of the same \
             owner that admit you, as <strong>{email}</strong>, until this login ends.</p><p>Go on only if you have \
             just started it yourself.</p><form method=\"post\" action=\"{path}\"><input type=\"hidden\" name=\"form\" \
             value=\"{form}\"><div class=\"acts\"><button name=\"decision\" value=\"allow\">Allow</button><button \
             class=\"other\" name=\"decision\" value=\"deny\">No</button></div></form>"
        );
        Ok(written(StatusCode::OK, "Allow this program?", body).forms_lead(Some(programs)).into_response())
    }
}

/// The text as the value of a query parameter (RFC 3986 section 2.1).
fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() + 16), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

/// A program of this machine requests a code (RFC 6749 section 4.1.1, RFC 7636, RFC 8252).
pub(super) async fn client(
    State(app): State<App>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    client_page(&app, &uri, &headers).await
}

async fn client_page(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<Response, LoginError> {
    let mut given = parameters(uri.query().unwrap_or_default())?;
    let mut take = |name: &str| given.remove(name).ok_or_else(|| bad(format!("the parameter {name} is missing")));
    // No redirect happens before the address was checked.
    let redirect_uri = take("redirect_uri")?;
    if !is_loopback(&redirect_uri) {
        return Err(bad("the redirect_uri must be an address of the program's own machine: http://127.0.0.1:PORT/..."));
    }
    if take("response_type")? != "code" || take("code_challenge_method")? != "S256" {
        return Err(bad("the program must ask for a code with a code challenge of the method S256"));
    }
    let (state, challenge, host) = (take("state")?, take("code_challenge")?, take("host")?);
    let is_state = (8..=MAX_STATE_BYTES).contains(&state.len()) && state.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_state || !is_challenge(&challenge) {
        return Err(bad("the program gave no valid state or code challenge"));
    }
    let (route, host) = app.asking_socket(&host).await?;
    let Some(session) = app.person_at(headers, &route).await? else { return Ok(app.to_sign_on(&host, uri)) };
    let explanation = "A program on this computer asks to log in as you.";
    app.consent(&session, &route, ConsentPurpose::Code { redirect_uri, state, challenge }, ("/client", explanation))
}

/// One of the original programs requests its token.
pub(super) async fn mysocket(
    State(app): State<App>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    mysocket_page(&app, &uri, &headers).await
}

async fn mysocket_page(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<Response, LoginError> {
    let given = parameters(uri.query().unwrap_or_default())?;
    let port = given.get("port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
    let port = port.ok_or_else(|| bad("the parameter port is missing, or no port"))?;
    let host = given.get("host").ok_or_else(|| bad("the parameter host is missing"))?;
    let (route, host) = app.asking_socket(host).await?;
    let Some(session) = app.person_at(headers, &route).await? else { return Ok(app.to_sign_on(&host, uri)) };
    let explanation = format!("A mysocket client on this computer, at port {port}, asks to log in as you.");
    app.consent(&session, &route, ConsentPurpose::Mysocket { port }, ("/client/mysocket", &explanation))
}

/// A person opens the page for a code that a program shows.
pub(super) async fn device(
    State(app): State<App>,
    OriginalUri(uri): OriginalUri,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
) -> Result<Response, LoginError> {
    device_page(&app, &uri, address, &headers).await
}

/// The page on which a code is typed, from where the browser may be redirected to a provider.
fn typing(status: StatusCode, body: String) -> Response {
    written(status, "Log in a program", body).forms_lead(None).into_response()
}

async fn device_page(app: &App, uri: &Uri, address: IpAddr, headers: &HeaderMap) -> Result<Response, LoginError> {
    let given = parameters(uri.query().unwrap_or_default())?;
    let form = "<form method=\"get\" action=\"/device\"><label>Code <input name=\"code\" autocomplete=\"off\" \
                autocapitalize=\"characters\" spellcheck=\"false\" autofocus maxlength=\"12\"></label><div \
                class=\"acts\"><button>Go on</button></div></form>";
    let Some(text) = given.get("code").filter(|text| !text.is_empty()) else {
        let body = format!("<p>Type the code that the program shows.</p>{form}");
        return Ok(typing(StatusCode::OK, body));
    };
    let now = app.clock.now().monotonic;
    app.device_limits.guess(address, now).map_err(ApiError::limited)?;
    let waiting = match parse_user_code(text) {
        Some(code) => app.store.device_login(&code, app.clock.now().unix_seconds).await.map_err(ApiError::from)?,
        None => None,
    };
    let found = match waiting {
        Some(waiting) => app.route(waiting.socket).await?.map(|route| (waiting, route)),
        None => None,
    };
    let Some((waiting, route)) = found else {
        let wrong = wrong(Some("No program waits with this code: it may be mistyped, or too old."));
        let body = format!("{wrong}{form}");
        return Ok(typing(StatusCode::NOT_FOUND, body));
    };
    app.device_limits.record_right_guess(address, now);
    let Some(session) = app.person_at(headers, &route).await? else {
        return Ok(app.to_sign_on(&app.dns_name(&route.name), uri));
    };
    let explanation = format!(
        "A program at the address <code>{}</code> that shows the code <code>{}</code> asks to log in as you.",
        Escaped(&waiting.client),
        format_user_code(&waiting.code)
    );
    app.consent(&session, &route, ConsentPurpose::Device { user_code: waiting.code }, ("/device", &explanation))
}

/// Handles the person's decision.
pub(super) async fn agree(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Response, LoginError> {
    decided(&app, &headers, body).await
}

async fn decided(app: &App, headers: &HeaderMap, body: Body) -> Result<Response, LoginError> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // A form of a page here has this host as its origin.
    let origin_fits =
        headers.get_all(header::ORIGIN).iter().all(|origin| origin.as_bytes() == app.login_url().as_bytes());
    let site_fits = text(&SEC_FETCH_SITE).is_none_or(|site| site == "same-origin");
    if !origin_fits || !site_fits {
        return Err(LoginError::new(
            StatusCode::FORBIDDEN,
            "That did not work",
            "This form was not sent by a page of this server.",
        ));
    }
    let body = extract::read(body).await?;
    let given = parameters(std::str::from_utf8(&body).map_err(|_| bad("the form is not valid"))?)?;
    let form: Option<Consent> = given.get("form").and_then(|form| app.sealer.open(Purpose::Form, form));
    let now = app.clock.now().unix_seconds;
    let form = form.filter(|form| form.is_fresh(now)).ok_or_else(|| bad("this page is too old: begin again"))?;
    let route = app.route(form.socket).await?.ok_or_else(|| bad("the socket is gone"))?;
    // The browser must still have the login that saw the page.
    let session = app.person_at(headers, &route).await?.filter(|session| session.id == form.session);
    let session = session.ok_or_else(|| bad("you are not logged in any more as the same person: begin again"))?;
    let agreed = match given.get("decision").map(String::as_str) {
        Some("allow") => true,
        Some("deny") => false,
        _ => return Err(bad("the form is not valid")),
    };
    tracing::debug!(
        target: "audit", event = if agreed { "program-let-in" } else { "program-refused" },
        organisation = %session.organisation, email = %session.person.email, socket = %route.id, session = %session.id,
    );
    let host = app.dns_name(&route.name);
    let target = match &form.purpose {
        ConsentPurpose::Device { user_code } => format!("{host} (code {})", format_user_code(user_code)),
        ConsentPurpose::Code { .. } | ConsentPurpose::Mysocket { .. } => host,
    };
    let refused = (!agreed).then_some("the person refused");
    let entered = session.clone();
    let answer = answer(app, session, &route, form.purpose, agreed).await?;
    app.audit_decision(&entered, "program.let-in", &target, refused);
    Ok(answer)
}

async fn answer(
    app: &App,
    session: Arc<LoginSession>,
    route: &SocketRoute,
    purpose: ConsentPurpose,
    agreed: bool,
) -> Result<Response, LoginError> {
    let now = app.clock.now();
    let to = match purpose {
        ConsentPurpose::Code { redirect_uri, state, .. } if !agreed => {
            format!("{redirect_uri}?error=access_denied&state={}", encoded(&state))
        }
        ConsentPurpose::Code { redirect_uri, state, challenge } => {
            app.device_limits.code(session.organisation, now.monotonic)?;
            let id = random::bytes().map_err(ApiError::from)?;
            let code = Code {
                id,
                session: session.id,
                socket: route.id,
                redirect_uri: redirect_uri.clone(),
                challenge,
                at: now.unix_seconds,
            };
            let code = app.sealer.seal(Purpose::ClientCode, &code, random::bytes().map_err(ApiError::from)?);
            let code = code.ok_or_else(|| ApiError::internal("a code cannot be sealed"))?;
            format!("{redirect_uri}?code={code}&state={}", encoded(&state))
        }
        ConsentPurpose::Mysocket { port } if !agreed => format!("http://localhost:{port}/?error=access_denied"),
        ConsentPurpose::Mysocket { port } => {
            let says = MysocketClient {
                user_email: session.person.email.to_string(),
                socket_dns: app.dns_name(&route.name),
                socket_port: route.port.unwrap_or(app.config.public_port),
            };
            let token = app.mysocket_client_tokens.issue(session.id, &says, now.unix_seconds);
            format!("http://localhost:{port}/?token={}", token.map_err(ApiError::internal)?)
        }
        ConsentPurpose::Device { user_code } => {
            let agreed = agreed.then_some(session.id);
            let answered = app.store.answer_device_login(&user_code, agreed, now.unix_seconds).await;
            if !answered.map_err(ApiError::from)? {
                return Err(bad("no program waits any more with this code: start it again"));
            }
            let title = if agreed.is_some() { "The program is logged in." } else { "The program was refused." };
            let body = "<p>You can close this page, and go back to the program.</p>";
            return Ok(page(StatusCode::OK, title, body.to_owned()));
        }
    };
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response())
}
