//! An OpenID provider that answers as a test wants.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::harness::START;

pub(crate) const CLIENT_ID: &str = "sallyport";
pub(crate) const SECRET: &str = "s3 cret:with/odd+signs";

/// How an ID token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signing {
    Right,
    /// `alg: none`, without a signature.
    Nothing,
    /// HS256 with the public key as the secret.
    PublicKeyAsSecret,
    /// With an unpublished key, under the id of a published one.
    ForeignKey,
}

/// The answers of the provider.
pub(crate) struct Says {
    pub(crate) signing: Signing,
    /// Replaces claims of a good token; `null` removes one.
    pub(crate) claims: Value,
    /// The response of userinfo.
    pub(crate) userinfo: Value,
    /// The addresses of the user of GitHub.
    pub(crate) github_emails: Value,
    /// Replaces fields of the discovery document.
    pub(crate) discovery: Value,
    /// A response to the code instead of tokens, with its status.
    pub(crate) token_response: Option<(u16, String)>,
    pub(crate) key_id: String,
    pub(crate) now: i64,
    /// Added to the response to a good code.
    pub(crate) with_tokens: Value,
    /// Replaces claims of a refreshed ID token; `None` for no ID token.
    pub(crate) refreshed: Option<Value>,
    /// A response to a refresh token instead of tokens, with its status.
    pub(crate) refresh_response: Option<(u16, String)>,
    /// The next valid refresh token.
    pub(crate) refresh_token: Option<String>,
    /// The response of introspection.
    pub(crate) introspection: (u16, Value),
    pair: EcdsaKeyPair,
    codes: HashMap<String, (String, String)>,
    asked: Vec<String>,
}

pub(crate) struct FakeProvider {
    pub(crate) issuer: String,
    address: SocketAddr,
    says: Arc<Mutex<Says>>,
    serving: JoinHandle<()>,
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn new_pair() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

impl FakeProvider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let issuer = format!("http://{address}/id");
        let says = Arc::new(Mutex::new(Says {
            signing: Signing::Right,
            claims: json!({}),
            userinfo: json!({}),
            discovery: json!({}),
            github_emails: json!([]),
            token_response: None,
            key_id: "k1".to_owned(),
            now: START,
            with_tokens: json!({}),
            refreshed: None,
            refresh_response: None,
            refresh_token: None,
            introspection: (200, json!({"active": true})),
            pair: new_pair(),
            codes: HashMap::new(),
            asked: Vec::new(),
        }));
        let serving = tokio::spawn(serve(listener, issuer.clone(), says.clone()));
        Self { issuer, address, says, serving }
    }

    pub(crate) fn says(&self) -> MutexGuard<'_, Says> {
        self.says.lock().unwrap()
    }

    /// The provider gets a new key, and drops the former one.
    pub(crate) fn rotate(&self, key_id: &str) {
        let mut says = self.says();
        says.pair = new_pair();
        says.key_id = key_id.to_owned();
    }

    /// Stops the provider.
    pub(crate) async fn stop(&self) {
        self.serving.abort();
        while TcpStream::connect(self.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    /// Logs the person in. Returns a code for the browser's request.
    pub(crate) fn log_in(&self, asked: &HashMap<String, String>) -> String {
        assert_eq!(asked["code_challenge_method"], "S256");
        assert_eq!((asked["client_id"].as_str(), asked["response_type"].as_str()), (CLIENT_ID, "code"));
        let mut says = self.says();
        let code = format!("code-{}", says.codes.len());
        let nonce = asked.get("nonce").cloned().unwrap_or_default();
        says.codes.insert(code.clone(), (nonce, asked["code_challenge"].clone()));
        code
    }

    /// The requested paths so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.says().asked.clone()
    }
}

async fn serve(listener: TcpListener, issuer: String, says: Arc<Mutex<Says>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (issuer, says) = (issuer.clone(), says.clone());
        tokio::spawn(async move { response(stream, &issuer, &says).await });
    }
}

async fn response(mut stream: TcpStream, issuer: &str, says: &Mutex<Says>) -> Option<()> {
    let mut request = Vec::new();
    let (head, body) = loop {
        let mut chunk = [0; 4_096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                break (head.to_owned(), body.to_owned());
            }
        }
    };
    let path = head.split(' ').nth(1)?.to_owned();
    let (status, response) = says.lock().unwrap().response(issuer, &path, &head, &body);
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{response}",
        response.len()
    );
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

fn over(mut good: Value, lies: &Value) -> Value {
    for (name, lie) in lies.as_object().unwrap() {
        if lie.is_null() {
            good.as_object_mut().unwrap().remove(name);
        } else {
            good[name] = lie.clone();
        }
    }
    good
}

impl Says {
    fn response(&mut self, issuer: &str, path: &str, head: &str, body: &str) -> (u16, String) {
        let path = path.strip_prefix("/id").unwrap_or(path);
        self.asked.push(path.to_owned());
        let is_bearer = head.lines().any(|line| line == "authorization: Bearer at");
        match path {
            "/.well-known/openid-configuration" => {
                let good = json!({
                    "issuer": issuer,
                    "authorization_endpoint": format!("{issuer}/authorize?tenant=1"),
                    "token_endpoint": format!("{issuer}/token"),
                    "jwks_uri": format!("{issuer}/keys"),
                    "userinfo_endpoint": format!("{issuer}/userinfo"),
                });
                (200, over(good, &self.discovery).to_string())
            }
            "/keys" => (200, json!({"keys": [{"kty": "new"}, self.jwk()]}).to_string()),
            "/userinfo" => (200, self.userinfo.to_string()),
            "/token" if body.contains("grant_type=refresh_token") => self.refresh(issuer, body),
            "/token" => self.token(issuer, head, body),
            "/introspect" => (self.introspection.0, self.introspection.1.to_string()),
            "/login/oauth/access_token" | "/v23.0/oauth/access_token" => self.plain_token(body),
            "/api/v3/user" | "/api/v3/user/emails" | "/v23.0/me?fields=id,name,email" if !is_bearer => {
                (401, "{}".to_owned())
            }
            "/api/v3/user" => (200, json!({"id": 583_231, "login": "octocat", "name": null}).to_string()),
            "/api/v3/user/emails" => (200, self.github_emails.to_string()),
            "/v23.0/me?fields=id,name,email" => {
                (200, json!({"id": "77", "name": "Fay", "email": "fay@example.com"}).to_string())
            }
            _ => (404, "{}".to_owned()),
        }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": self.key_id, "use": "sig",
               "x": part(&point[1..33]), "y": part(&point[33..])})
    }

    fn token(&mut self, issuer: &str, head: &str, body: &str) -> (u16, String) {
        if let Some(response) = &self.token_response {
            return response.clone();
        }
        let parameters = crate::login::parameters(body);
        let expected = "s3%20cret%3Awith%2Fodd%2Bsigns";
        let basic = format!("authorization: Basic {}", STANDARD.encode(format!("{CLIENT_ID}:{expected}")));
        if !head.lines().any(|line| line == basic) {
            return (401, json!({"error": "invalid_client"}).to_string());
        }
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&parameters["code_verifier"]));
        let Some((nonce, _)) = self.codes.remove(&parameters["code"]).filter(|(_, wanted)| *wanted == challenge) else {
            return (400, json!({"error": "invalid_grant", "error_description": "<no such code>"}).to_string());
        };
        let good = json!({
            "iss": issuer, "aud": CLIENT_ID, "sub": "u-1", "nonce": nonce, "iat": self.now, "exp": self.now + 300,
            "email": "Ann@Example.com", "email_verified": true, "name": "Ann \u{c5}", "groups": ["eng", "ops"],
        });
        let token = self.sign(&over(good, &self.claims));
        let tokens = json!({"access_token": "at", "token_type": "Bearer", "id_token": token});
        let tokens = over(tokens, &self.with_tokens);
        self.refresh_token = tokens["refresh_token"].as_str().map(str::to_owned);
        (200, tokens.to_string())
    }

    /// Each refresh token is valid once, and is replaced.
    fn refresh(&mut self, issuer: &str, body: &str) -> (u16, String) {
        if let Some(response) = &self.refresh_response {
            return response.clone();
        }
        let given = crate::login::parameters(body).remove("refresh_token");
        if given.is_none() || given != self.refresh_token {
            return (400, json!({"error": "invalid_grant", "error_description": "no such token"}).to_string());
        }
        self.refresh_token = given.map(|given| format!("{given}+"));
        let mut tokens = json!({"access_token": "at", "token_type": "Bearer", "refresh_token": self.refresh_token});
        if let Some(claims) = &self.refreshed {
            let good = json!({
                "iss": issuer, "aud": CLIENT_ID, "sub": "u-1", "iat": self.now, "exp": self.now + 300,
                "email": "Ann@Example.com", "email_verified": true, "name": "Ann \u{c5}", "groups": ["eng", "ops"],
            });
            tokens["id_token"] = json!(self.sign(&over(good, claims)));
        }
        (200, tokens.to_string())
    }

    /// A logout token; `claims` replaces those of a good one.
    pub(crate) fn logout_token(&self, issuer: &str, claims: &Value) -> String {
        let good = json!({
            "iss": issuer, "aud": CLIENT_ID, "sub": "u-1", "iat": self.now, "exp": self.now + 120, "jti": "j-1",
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        });
        self.sign(&over(good, claims))
    }

    /// The token endpoint of GitHub and Facebook, with the secret in the form.
    fn plain_token(&mut self, body: &str) -> (u16, String) {
        if let Some(response) = &self.token_response {
            return response.clone();
        }
        let parameters = crate::login::parameters(body);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&parameters["code_verifier"]));
        let known = self.codes.remove(&parameters["code"]).is_some_and(|(_, wanted)| wanted == challenge);
        assert!(known && parameters["client_secret"] == SECRET);
        (200, json!({"access_token": "at", "token_type": "bearer", "scope": "user:email"}).to_string())
    }

    fn sign(&self, claims: &Value) -> String {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let alg = match self.signing {
            Signing::Nothing => "none",
            Signing::PublicKeyAsSecret => "HS256",
            Signing::Right | Signing::ForeignKey => "ES256",
        };
        let text = format!("{}.{}", part(&json!({"alg": alg, "kid": self.key_id})), part(claims));
        let signed =
            |pair: &EcdsaKeyPair| URL_SAFE_NO_PAD.encode(pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap());
        let signature = match self.signing {
            Signing::Right => signed(&self.pair),
            Signing::ForeignKey => signed(&new_pair()),
            Signing::Nothing => String::new(),
            Signing::PublicKeyAsSecret => {
                let key = jsonwebtoken::EncodingKey::from_secret(self.pair.public_key().as_ref());
                jsonwebtoken::crypto::sign(text.as_bytes(), &key, jsonwebtoken::Algorithm::HS256).unwrap()
            }
        };
        format!("{text}.{signature}")
    }
}
