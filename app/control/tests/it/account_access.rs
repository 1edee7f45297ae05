//! Passwords, codes and sessions of accounts, and every way in which they must fail.

use axum::body::Body;
use http::{Request, StatusCode};
use sallyport_api::{
    Account, AccountReset, AccountSession, BegunTotp, EndedAccountSessions, Page, RecoveryCodes, Session,
};
use sallyport_identity::totp;
use serde_json::{Value, json};

use crate::{
    fake_hook::{FakeHook, SECRET, path_of},
    harness::{Api, HttpResponse, PASSWORD},
    local::form,
    login::assert_page,
};

const EMAIL: &str = "ann@example.com";
const NEXT: &str = "another horse battery";

impl Api {
    async fn try_login(&self, password: &str, code: Option<&str>) -> HttpResponse {
        let mut body = json!({"email": EMAIL, "password": password});
        if let Some(code) = code {
            body["code"] = json!(code);
        }
        self.post("/v1/login", None, body).await
    }

    async fn is_good(&self, token: &str) -> bool {
        self.get("/v1/account", Some(token)).await.status == StatusCode::OK
    }

    async fn change_password(&self, token: &str, current: &str, next: &str) -> HttpResponse {
        let body = json!({"current_password": current, "new_password": next});
        self.post("/v1/account/password", Some(token), body).await
    }

    async fn account_sessions(&self, token: &str) -> Vec<AccountSession> {
        self.get("/v1/account/sessions", Some(token)).await.read::<Page<AccountSession>>(StatusCode::OK).items
    }

    /// The current code, or the one this many steps later.
    fn totp_code(&self, secret: &[u8], steps: i64) -> String {
        format!("{:06}", totp(secret, self.clock.unix_seconds() / 30 + steps))
    }

    /// Turns codes on. Returns their secret and the recovery codes.
    async fn enable_totp(&self, token: &str) -> (Vec<u8>, Vec<String>) {
        let begun: BegunTotp = self
            .post("/v1/account/totp", Some(token), json!({"current_password": PASSWORD}))
            .await
            .read(StatusCode::OK);
        assert!(
            begun.uri.expose().starts_with("otpauth://totp/localhost:ann@example.com?secret="),
            "{}",
            begun.uri.expose()
        );
        let secret = unbase32(begun.secret.expose());
        let confirm = |code: String| json!({"enrolment": begun.enrolment, "code": code});
        let wrong = self.post("/v1/account/totp/confirm", Some(token), confirm("000000".into())).await;
        wrong.assert_problem(StatusCode::FORBIDDEN, "wrong-code");
        let code = self.totp_code(&secret, 0);
        let codes: RecoveryCodes =
            self.post("/v1/account/totp/confirm", Some(token), confirm(code)).await.read(StatusCode::OK);
        (secret, codes.recovery_codes.iter().map(|code| code.expose().to_owned()).collect())
    }
}

fn unbase32(text: &str) -> Vec<u8> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.bytes() {
        let at = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|known| *known == letter).unwrap();
        bits = bits << 5 | at as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

#[tokio::test]
async fn another_password_takes_the_one_of_now_and_ends_the_other_sessions() {
    let api = Api::start().await;
    let here = api.account(EMAIL).await;
    let there = api.login(EMAIL).await;
    let token = api.api_token(&here, &["account:write"]).await;
    api.change_password(&here, "wrong horse battery", NEXT)
        .await
        .assert_problem(StatusCode::FORBIDDEN, "wrong-password");
    let weak = api.change_password(&here, PASSWORD, "short").await;
    assert_eq!((weak.status, weak.field().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "new_password"));
    api.change_password(&token, PASSWORD, NEXT).await.assert_problem(StatusCode::FORBIDDEN, "login-needed");
    assert!(api.is_good(there.access_token.expose()).await, "nothing has changed yet");

    let changed = api.change_password(&here, PASSWORD, NEXT).await;
    assert_eq!(changed.status, StatusCode::NO_CONTENT, "{}", changed.text);
    api.try_login(PASSWORD, None).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    assert_eq!(api.try_login(NEXT, None).await.status, StatusCode::OK);
    let gone = api.get("/v1/account", Some(there.access_token.expose())).await;
    gone.assert_problem(StatusCode::UNAUTHORIZED, "logged-out");
    let refreshed = api.post("/v1/login/refresh", None, json!({"refresh_token": there.refresh_token})).await;
    refreshed.assert_problem(StatusCode::UNAUTHORIZED, "bad-refresh-token");
    assert!(api.is_good(&here).await && api.is_good(&token).await, "this session and API tokens go on");
    let events = api.audit(&here, "&order=oldest").await;
    assert!(events.iter().any(|event| event.admin.as_ref().is_some_and(|admin| admin.action == "account.password")));
    let refused = |reason: &str| {
        events.iter().any(|event| event.login.as_ref().is_some_and(|login| login.reason.as_deref() == Some(reason)))
    };
    assert!(refused("wrong current password") && refused("wrong password"));
}

#[tokio::test]
async fn guessing_the_password_of_now_is_limited_too() {
    let api = Api::start().await;
    let here = api.account(EMAIL).await;
    for _ in 0..10 {
        api.change_password(&here, "wrong horse battery", NEXT)
            .await
            .assert_problem(StatusCode::FORBIDDEN, "wrong-password");
    }
    let limited = api.change_password(&here, PASSWORD, NEXT).await;
    limited.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
}

#[tokio::test]
async fn sessions_say_when_from_where_and_by_what_and_end_at_once() {
    let api = Api::start().await;
    let here = api.account(EMAIL).await;
    api.clock.pass(60);
    let body = json!({"email": EMAIL, "password": PASSWORD}).to_string();
    let request = Request::post("/v1/login")
        .header("content-type", "application/json")
        .header("user-agent", "sallyport/0.1\u{202e} evil".as_bytes())
        .body(Body::from(body))
        .unwrap();
    let there: Session = api.raw(request).await.read(StatusCode::OK);
    let from_afar = api.client_at("[2001:db8::7]:5000");
    let afar: Session =
        from_afar.post("/v1/login", json!({"email": EMAIL, "password": PASSWORD})).await.read(StatusCode::OK);
    let sessions = api.account_sessions(&here).await;
    assert_eq!(sessions.iter().map(|one| one.current).collect::<Vec<_>>(), [true, false, false]);
    let addresses: Vec<_> = sessions.iter().map(|one| one.address.as_deref().unwrap()).collect();
    assert_eq!(addresses, ["192.0.2.1", "192.0.2.1", "2001:db8::7"]);
    assert_eq!(sessions[1].client.as_deref(), Some("sallyport/0.1 evil"), "nothing turns the text around");
    assert_eq!(sessions[2].client, None);
    assert!(sessions[1].created_at > sessions[0].created_at);

    // A session that is refreshed elsewhere shows that.
    api.clock.pass(600);
    let refresh = json!({"refresh_token": there.refresh_token});
    let there: Session = api.client_at("198.51.100.4:1").post("/v1/login/refresh", refresh).await.read(StatusCode::OK);
    let moved = api.account_sessions(&here).await.remove(1);
    assert_eq!(moved.address.as_deref(), Some("198.51.100.4"));
    assert_eq!(moved.last_used_at.unwrap().unix_timestamp(), api.clock.unix_seconds());

    let token = api.api_token(&here, &["account:write"]).await;
    let by_token = api.get("/v1/account/sessions", Some(&token)).await;
    by_token.assert_problem(StatusCode::FORBIDDEN, "login-needed");
    let bob = api.account("bob@example.com").await;
    let path = format!("/v1/account/sessions/{}", moved.id);
    api.send("DELETE", &path, Some(&bob), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    assert_eq!(api.send("DELETE", &path, Some(&here), None).await.status, StatusCode::NO_CONTENT);
    api.send("DELETE", &path, Some(&here), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    api.send("DELETE", "/v1/account/sessions/x", Some(&here), None)
        .await
        .assert_problem(StatusCode::NOT_FOUND, "not-found");
    assert!(!api.is_good(there.access_token.expose()).await && api.is_good(afar.access_token.expose()).await);
    let ended = api.send("POST", "/v1/account/sessions/end-others", Some(&here), None).await;
    assert_eq!(ended.read::<EndedAccountSessions>(StatusCode::OK).ended, 1);
    assert!(!api.is_good(afar.access_token.expose()).await && api.is_good(&here).await && api.is_good(&bob).await);
    let actions = api.actions(&here).await;
    assert!(actions.contains(&"account.session-end".to_owned()), "{actions:?}");
    assert!(actions.contains(&"account.session-end-others".to_owned()), "{actions:?}");
}

#[tokio::test]
async fn codes_are_required_besides_the_password_and_work_once() {
    let api = Api::start().await;
    let here = api.account(EMAIL).await;
    let there = api.login(EMAIL).await;
    let token = api.api_token(&here, &["account:write"]).await;
    let begin = |password: &str| json!({ "current_password": password });
    let wrong = api.post("/v1/account/totp", Some(&here), begin("wrong horse battery")).await;
    wrong.assert_problem(StatusCode::FORBIDDEN, "wrong-password");
    let by_token = api.post("/v1/account/totp", Some(&token), begin(PASSWORD)).await;
    by_token.assert_problem(StatusCode::FORBIDDEN, "login-needed");
    let proof = |code: &str| json!({"current_password": PASSWORD, "code": code});
    let off = api.post("/v1/account/totp/disable", Some(&here), proof("123456")).await;
    off.assert_problem(StatusCode::CONFLICT, "totp-off");

    let (secret, recovery) = api.enable_totp(&here).await;
    assert_eq!(recovery.len(), 10);
    assert!(!api.is_good(there.access_token.expose()).await, "what began without a code ends");
    assert!(api.is_good(&here).await && api.is_good(&token).await, "API tokens are good without codes");
    let shown: Account = api.get("/v1/account", Some(&here)).await.read(StatusCode::OK);
    assert_eq!((shown.totp, shown.recovery_codes), (true, 10));
    let again = api.post("/v1/account/totp", Some(&here), begin(PASSWORD)).await;
    again.assert_problem(StatusCode::CONFLICT, "totp-on");

    // The password alone is not enough, and a wrong one reveals nothing.
    api.try_login(PASSWORD, None).await.assert_problem(StatusCode::UNAUTHORIZED, "code-needed");
    api.try_login("wrong horse battery", None).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    let right = api.totp_code(&secret, 1);
    let wrong_password = api.try_login("wrong horse battery", Some(&right)).await;
    wrong_password.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    for wrong in ["000000", "", "12345", "not a code at all", &api.totp_code(&secret, 1_000)] {
        api.try_login(PASSWORD, Some(wrong)).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-code");
        api.clock.pass(60);
    }
    let right = api.totp_code(&secret, 0);
    assert_eq!(api.try_login(PASSWORD, Some(&right)).await.status, StatusCode::OK);
    api.try_login(PASSWORD, Some(&right)).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-code");
    assert_eq!(api.try_login(PASSWORD, Some(&recovery[0].to_uppercase())).await.status, StatusCode::OK);
    api.try_login(PASSWORD, Some(&recovery[0])).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-code");

    // The original clients cannot send a code, and get an error.
    let original = api.post("/login", None, json!({"email": EMAIL, "password": PASSWORD})).await;
    assert!(original.status == StatusCode::UNAUTHORIZED && original.text.contains("requires a code"), "{original:?}");

    // New recovery codes, and then none.
    api.clock.pass(60);
    let code = api.totp_code(&secret, 0);
    let fresh: RecoveryCodes = api.post("/v1/account/totp/codes", Some(&here), proof(&code)).await.read(StatusCode::OK);
    api.try_login(PASSWORD, Some(&recovery[1])).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-code");
    let wrong = api.post("/v1/account/totp/disable", Some(&here), proof("000000")).await;
    wrong.assert_problem(StatusCode::FORBIDDEN, "wrong-code");
    let recovery = fresh.recovery_codes[0].expose();
    let off = api.post("/v1/account/totp/disable", Some(&here), proof(recovery)).await;
    assert_eq!(off.status, StatusCode::NO_CONTENT, "{}", off.text);
    assert_eq!(api.try_login(PASSWORD, None).await.status, StatusCode::OK);
    let actions = api.actions(&here).await;
    for action in
        ["account.totp-on", "account.recovery-code", "account.recovery-codes", "account.totp-off", "account.totp-begin"]
    {
        assert!(actions.contains(&action.to_owned()), "{action}: {actions:?}");
    }
}

#[tokio::test]
async fn wrong_codes_wait_longer_and_longer_without_locking_the_owner_out() {
    let api = Api::start().await;
    let here = api.account(EMAIL).await;
    let (secret, _) = api.enable_totp(&here).await;
    let home = api.client_at("203.0.113.1:1");
    api.clock.pass(30);
    let with = |code: &str| json!({"email": EMAIL, "password": PASSWORD, "code": code});
    assert_eq!(home.post("/v1/login", with(&api.totp_code(&secret, 0))).await.status, StatusCode::OK);
    let thief = api.client_at("198.51.100.1:1");
    for _ in 0..4 {
        thief.post("/v1/login", with("000000")).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-code");
    }
    // A right password gives no more attempts.
    thief.post("/v1/login", json!({"email": EMAIL, "password": PASSWORD})).await;
    thief.post("/v1/login", with("000000")).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-code");
    let waits = thief.post("/v1/login", with("000000")).await;
    waits.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
    api.clock.pass(30);
    assert_eq!(home.post("/v1/login", with(&api.totp_code(&secret, 0))).await.status, StatusCode::OK);
    // Many clients fail: new clients are refused, and her own client continues.
    for n in 2..30 {
        api.client_at(&format!("198.51.100.{n}:1")).post("/v1/login", with("000000")).await;
    }
    api.clock.pass(1);
    let new = api.client_at("198.51.100.200:1").post("/v1/login", with("000000")).await;
    new.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
    api.clock.pass(30);
    assert_eq!(home.post("/v1/login", with(&api.totp_code(&secret, 0))).await.status, StatusCode::OK);
    let events = api.audit(&here, "&kind=login").await;
    let reasons = events.iter().filter_map(|event| event.login.as_ref()?.reason.clone());
    assert!(reasons.into_iter().any(|reason| reason.starts_with("wrong code; too many were wrong")));
}

/// Makes the first account with closed sign-up, and another one by invitation.
async fn guest(api: &Api, owner: &str, email: &str) -> String {
    let made = api.post("/v1/invitations", Some(owner), json!({"email": email, "role": "viewer"})).await.json();
    let body = json!({"name": "Bob", "email": email, "password": PASSWORD, "invitation": made["code"]});
    assert_eq!(api.post("/v1/accounts", None, body).await.status, StatusCode::CREATED);
    api.login(email).await.access_token.expose().to_owned()
}

#[tokio::test]
async fn the_owner_of_the_installation_resets_a_lost_password_and_codes() {
    let api = Api::start().await;
    let owner = api.account("owner@example.com").await;
    let here = api.account(EMAIL).await;
    let (_, _) = api.enable_totp(&here).await;
    let reset = |who: &str, body: Value| {
        let (api, who) = (&api, who.to_owned());
        async move { api.post("/v1/accounts/reset", Some(&who), body).await }
    };
    reset(&here, json!({ "email": "owner@example.com" })).await.assert_problem(StatusCode::FORBIDDEN, "not-owner");
    let all: Vec<_> = sallyport_model::Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    let token = api.api_token(&owner, &all).await;
    reset(&token, json!({ "email": EMAIL })).await.assert_problem(StatusCode::FORBIDDEN, "login-needed");
    reset(&owner, json!({ "email": "nobody@example.com" })).await.assert_problem(StatusCode::NOT_FOUND, "not-found");

    let made: AccountReset = reset(&owner, json!({ "email": EMAIL })).await.read(StatusCode::OK);
    let code = made.code.unwrap();
    assert!(!made.sent && made.link.unwrap().expose().ends_with(&format!("/reset?key={}", code.expose())));
    assert!(!api.is_good(&here).await, "all sessions end");
    api.try_login(PASSWORD, None).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    let set = |code: &str, password: &str| {
        let body = json!({"code": code, "new_password": password});
        let api = &api;
        async move { api.post("/v1/accounts/password", None, body).await }
    };
    for bad in ["spp_", "spp_AAAA", "nonsense", &"A".repeat(64)] {
        set(bad, NEXT).await.assert_problem(StatusCode::NOT_FOUND, "bad-code");
    }
    assert_eq!(set(code.expose(), "short").await.field(), "new_password");
    assert_eq!(set(code.expose(), NEXT).await.status, StatusCode::NO_CONTENT);
    set(code.expose(), NEXT).await.assert_problem(StatusCode::NOT_FOUND, "bad-code");
    api.try_login(NEXT, None).await.assert_problem(StatusCode::UNAUTHORIZED, "code-needed");

    // With the codes, and too late.
    let made: AccountReset = reset(&owner, json!({"email": EMAIL, "totp": true})).await.read(StatusCode::OK);
    api.clock.pass(3_600);
    set(made.code.unwrap().expose(), NEXT).await.assert_problem(StatusCode::NOT_FOUND, "bad-code");
    let owner = api.login("owner@example.com").await.access_token.expose().to_owned();
    let made: AccountReset = reset(&owner, json!({"email": EMAIL, "totp": true})).await.read(StatusCode::OK);
    assert_eq!(set(made.code.unwrap().expose(), PASSWORD).await.status, StatusCode::NO_CONTENT);
    let here = api.try_login(PASSWORD, None).await.read::<Session>(StatusCode::OK);
    let own = api.actions(here.access_token.expose()).await;
    for action in ["account.reset", "account.reset-totp", "account.set-password"] {
        assert!(own.contains(&action.to_owned()), "{action}: {own:?}");
    }
    assert!(api.actions(&owner).await.contains(&"account.reset".to_owned()));
}

#[tokio::test]
async fn the_operator_resets_the_owner_with_the_data_directory() {
    let api = Api::start().await;
    let here = api.account(EMAIL).await;
    api.enable_totp(&here).await;
    let now = api.clock.unix_seconds();
    let nobody = sallyport_control::reset_account(&api.store, &"bob@example.com".parse().unwrap(), false, now).await;
    assert!(nobody.unwrap().is_none());
    let made = sallyport_control::reset_account(&api.store, &EMAIL.parse().unwrap(), true, now).await.unwrap().unwrap();
    assert!(!api.is_good(&here).await, "the running server sees it at once");
    let body = json!({"code": made.code.expose(), "new_password": NEXT});
    assert_eq!(api.post("/v1/accounts/password", None, body).await.status, StatusCode::NO_CONTENT);
    let again = api.try_login(NEXT, None).await.read::<Session>(StatusCode::OK);
    let events = api.audit(again.access_token.expose(), "&kind=admin").await;
    let set = events.into_iter().filter_map(|event| event.admin).find(|admin| admin.action == "account.set-password");
    assert!(set.unwrap().reason.unwrap().contains("data directory"));
}

#[tokio::test]
async fn a_forgotten_password_gets_a_message_without_revealing_accounts() {
    let hook = FakeHook::start().await;
    let api = Api::start_with_hook(&hook.url, SECRET).await;
    let here = api.account(EMAIL).await;
    let forgot = |email: &str| api.post("/v1/accounts/forgot", None, json!({ "email": email }));
    let (known, unknown) = (forgot("Ann@example.com").await, forgot("nobody@example.com").await);
    assert_eq!((known.status, &known.text), (StatusCode::ACCEPTED, &unknown.text));
    assert_eq!(known.status, unknown.status);
    let message = hook.waits_for(1).await;
    let content = message.json();
    assert_eq!((content["kind"].as_str(), content["email"].as_str()), (Some("account-password-reset"), Some(EMAIL)));
    assert!(message.header("sallyport-signature").starts_with("t="), "{}", message.head);
    let code = content["code"].as_str().unwrap().to_owned();
    let command = format!("sallyport account password --api https://api.localhost:8443 --code {code}");
    assert_eq!(content["command"], command.as_str());
    // Until it is used, everything is as before.
    assert!(api.is_good(&here).await && api.try_login(PASSWORD, None).await.status == StatusCode::OK);

    // Opening the page of the link does not use it up.
    let path = path_of(content["link"].as_str().unwrap());
    for _ in 0..2 {
        let page = api.page(Request::get(&path).body(Body::empty()).unwrap()).await;
        assert_page(&page, 200, EMAIL);
    }
    let key = path.split_once("key=").unwrap().1;
    let fields = |again| [("key", key), ("password", NEXT), ("again", again)];
    let differs = api.page(form("/reset", &fields("something else"))).await;
    assert!(differs.status == StatusCode::UNPROCESSABLE_ENTITY && differs.text.contains("not the same"));
    let mut foreign = form("/reset", &fields(NEXT));
    foreign.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
    assert_eq!(api.page(foreign).await.status, StatusCode::FORBIDDEN);
    let set = api.page(form("/reset", &fields(NEXT))).await;
    assert!(set.status == StatusCode::OK && set.text.contains("Your password is set"), "{}", set.text);
    assert!(!api.is_good(&here).await);
    let used = api.page(Request::get(&path).body(Body::empty()).unwrap()).await;
    assert!(used.status == StatusCode::NOT_FOUND && used.text.contains("does not work any more"), "{}", used.text);
    let again = api.try_login(NEXT, None).await.read::<Session>(StatusCode::OK);
    let actions = api.actions(again.access_token.expose()).await;
    assert!(actions.contains(&"account.forgot-password".to_owned()), "{actions:?}");

    // Messages to one address, and of one client, are limited.
    for _ in 0..5 {
        assert_eq!(forgot(EMAIL).await.status, StatusCode::ACCEPTED);
    }
    hook.waits_for(3).await;
    for _ in 0..3 {
        forgot("nobody@example.com").await;
    }
    forgot("nobody@example.com").await.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
    assert_eq!(hook.messages().len(), 3, "three at once, then one every five minutes");
}

#[tokio::test]
async fn without_a_hook_a_server_refuses_to_send_messages() {
    let api = Api::start().await;
    for email in [EMAIL, "nobody@example.com"] {
        let refused = api.post("/v1/accounts/forgot", None, json!({ "email": email })).await;
        refused.assert_problem(StatusCode::NOT_IMPLEMENTED, "no-mail-hook");
    }
}

#[tokio::test]
async fn a_reset_by_the_owner_goes_by_the_hook_and_is_shown_where_that_fails() {
    let hook = FakeHook::start().await;
    let api = Api::start_with_hook(&hook.url, SECRET).await;
    let owner = api.account(EMAIL).await;
    guest(&api, &owner, "bob@example.com").await;
    hook.waits_for(1).await;
    let reset = || api.post("/v1/accounts/reset", Some(&owner), json!({"email": "bob@example.com"}));
    let sent: AccountReset = reset().await.read(StatusCode::OK);
    assert!(sent.sent && sent.code.is_none() && sent.link.is_none() && sent.problem.is_none());
    let content = hook.waits_for(2).await.json();
    assert_eq!(content["email"], "bob@example.com");
    hook.answers("403 Forbidden");
    let shown: AccountReset = reset().await.read(StatusCode::OK);
    assert!(!shown.sent && shown.code.is_some() && shown.problem.unwrap().contains("403"));
}

#[test]
fn a_hook_that_cannot_be_used_is_refused_with_a_reason() {
    use sallyport_control::MailHook;
    assert!(MailHook::new("https://mail.example.com/x", SECRET.into(), None).is_ok());
    assert!(MailHook::new("http://mail.example.com/x", SECRET.into(), None).is_err());
    assert!(MailHook::new("https://mail.example.com/x", "short".into(), None).unwrap_err().contains("16 bytes"));
    assert!(MailHook::new("https://mail.example.com/x", SECRET.into(), Some("no pem".into())).is_err());
}
