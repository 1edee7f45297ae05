//! Logins (RFC 4252): by keys, certificates, and keyboard-interactive (RFC 4256) without a prompt.

use ssh_key::{Certificate, PublicKey, Signature, encoding::Decode as _};

use super::Server;
use crate::{
    algorithms::{UserAlgorithm, user_algorithm},
    error::{Error, Result},
    event::{Answer, Credential, Event, Login},
    limits::{MAX_KEY_BYTES, MAX_USER_BYTES},
    message, proof,
    wire::{Put, Reader},
};

/// The state of the client's login.
#[derive(Debug, Default)]
pub(super) struct Logins {
    state: State,
    refusals: usize,
    /// Whether keyboard-interactive is no longer offered.
    is_interactive_over: bool,
}

#[derive(Debug, Default)]
enum State {
    /// The client has not requested the service.
    #[default]
    NoService,
    Waiting,
    /// The driver decides about an attempt.
    Asking(AttemptEffect),
    /// A hint is shown; the client's empty answer follows.
    Hinted {
        user: String,
    },
    Done,
}

/// The effect of accepting the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AttemptEffect {
    /// The key would be accepted: its algorithm and blob.
    Offer {
        algorithm: String,
        blob: Vec<u8>,
    },
    Interactive {
        user: String,
    },
    Login,
    /// Must be refused.
    Nothing,
}

impl Logins {
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(super) fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }
}

/// An attempt by a key.
struct ByKey<'a> {
    algorithm: UserAlgorithm,
    blob: &'a [u8],
    /// The data signed after the session's identifier, and the signature.
    proof: Option<(&'a [u8], &'a [u8])>,
}

impl Server {
    /// Answers the last [`Login`]. Without one, nothing happens.
    pub fn answer_login(&mut self, answer: Answer) {
        if !self.logins.is_asking() || self.is_over {
            return;
        }
        let State::Asking(asked) = std::mem::replace(&mut self.logins.state, State::Waiting) else { return };
        match (answer, asked) {
            (Answer::Accept, AttemptEffect::Offer { algorithm, blob }) => self.output.send(|out| {
                out.push(message::USERAUTH_PK_OK);
                out.put_string(algorithm);
                out.put_string(blob);
            }),
            (Answer::Accept, AttemptEffect::Login | AttemptEffect::Interactive { .. }) => {
                self.logins.state = State::Done;
                self.output.send(|out| out.push(message::USERAUTH_SUCCESS));
            }
            (Answer::Hint(text), AttemptEffect::Interactive { user }) => {
                self.logins.state = State::Hinted { user };
                self.output.send(|out| {
                    out.push(message::USERAUTH_INFO_REQUEST);
                    out.put_string("");
                    out.put_string(text);
                    out.put_string("");
                    // No prompts.
                    out.put_u32(0);
                });
            }
            (answer, _) => {
                self.logins.is_interactive_over |= answer == Answer::RefuseInteractive;
                self.refuse();
            }
        }
    }

    /// Whether the client is logged in.
    pub fn is_logged_in(&self) -> bool {
        self.logins.is_done()
    }

    fn refuse(&mut self) {
        self.logins.refusals += 1;
        let is_interactive = self.config.is_interactive && !self.logins.is_interactive_over;
        self.output.send(|out| {
            out.push(message::USERAUTH_FAILURE);
            out.put_string(if is_interactive { "publickey,keyboard-interactive" } else { "publickey" });
            out.put_bool(false);
        });
    }

    pub(super) fn handle_service_request(&mut self, mut reader: Reader<'_>) -> Result<()> {
        let service = reader.text()?;
        reader.end()?;
        if service != "ssh-userauth" || !matches!(self.logins.state, State::NoService) {
            return Err(Error::Protocol("a service that is not offered"));
        }
        self.logins.state = State::Waiting;
        self.output.send(|out| {
            out.push(message::SERVICE_ACCEPT);
            out.put_string("ssh-userauth");
        });
        if let Some(banner) = &self.config.banner {
            self.output.send(|out| {
                out.push(message::USERAUTH_BANNER);
                out.put_string(format!("{}\r\n", banner.trim_end()));
                out.put_string("");
            });
        }
        Ok(())
    }

    pub(super) fn handle_login(&mut self, payload: &[u8]) -> Result<()> {
        match self.logins.state {
            // RFC 4252 section 5.1.
            State::Done => return Ok(()),
            State::NoService | State::Asking(_) => return Err(Error::Protocol("a login without its service")),
            // A new attempt replaces the previous one (RFC 4256 section 3.1).
            State::Waiting => {}
            // An abandoned hint counts like a refused attempt.
            State::Hinted { .. } => self.logins.refusals += 1,
        }
        self.check_refusals()?;
        let mut reader = Reader::new(payload);
        reader.u8()?;
        let (user, service, method) = (reader.text()?, reader.text()?, reader.text()?);
        if service != "ssh-connection" {
            return Err(Error::Protocol("a login for a service that is not offered"));
        }
        let is_interactive = self.config.is_interactive && !self.logins.is_interactive_over;
        let (credential, asked) = match method {
            "none" => (Credential::Nothing, AttemptEffect::Login),
            "publickey" => self.credential(payload, reader)?,
            "keyboard-interactive" if is_interactive => {
                (Credential::Interactive, AttemptEffect::Interactive { user: user.to_owned() })
            }
            _ => (Credential::Unusable, AttemptEffect::Nothing),
        };
        if user.len() > MAX_USER_BYTES {
            return self.ask(String::new(), Credential::Unusable, AttemptEffect::Nothing);
        }
        self.ask(user.to_owned(), credential, asked)
    }

    /// Handles the client's answer to a hint.
    pub(super) fn handle_info_response(&mut self) -> Result<()> {
        let State::Hinted { user } = &mut self.logins.state else {
            return if self.logins.is_done() { Ok(()) } else { Err(Error::Protocol("an unexpected INFO_RESPONSE")) };
        };
        let user = std::mem::take(user);
        self.check_refusals()?;
        self.logins.is_interactive_over = true;
        self.ask(user, Credential::Unusable, AttemptEffect::Nothing)
    }

    fn check_refusals(&self) -> Result<()> {
        if self.logins.refusals >= self.config.max_refusals { Err(Error::TooManyAttempts) } else { Ok(()) }
    }

    fn ask(&mut self, user: String, credential: Credential, asked: AttemptEffect) -> Result<()> {
        self.logins.state = State::Asking(asked);
        self.events.push_back(Event::Login(Login { user, credential }));
        Ok(())
    }

    /// The credential of a `publickey` attempt (RFC 4252 section 7).
    fn credential(&self, payload: &[u8], mut reader: Reader<'_>) -> Result<(Credential, AttemptEffect)> {
        let is_signed = reader.bool()?;
        let (name, blob) = (reader.text()?, reader.string()?);
        let signed = &payload[..payload.len() - reader.rest().len()];
        let proof = if is_signed { Some((signed, reader.string()?)) } else { None };
        reader.end()?;
        let unusable = (Credential::Unusable, AttemptEffect::Nothing);
        let Some(algorithm) = user_algorithm(name) else { return Ok(unusable) };
        if blob.len() > MAX_KEY_BYTES || Reader::new(blob).string() != Ok(algorithm.blob.as_bytes()) {
            return Ok(unusable);
        }
        let attempt = ByKey { algorithm, blob, proof };
        let asked = if is_signed {
            AttemptEffect::Login
        } else {
            AttemptEffect::Offer { algorithm: name.to_owned(), blob: blob.to_owned() }
        };
        let credential = self.check_key(&attempt);
        let asked = if matches!(credential, Credential::Unusable | Credential::Sha1(_)) {
            AttemptEffect::Nothing
        } else {
            asked
        };
        Ok((credential, asked))
    }

    fn check_key(&self, attempt: &ByKey<'_>) -> Credential {
        let is_proven = attempt.proof.is_some();
        if !attempt.algorithm.is_certificate {
            let Ok(key) = PublicKey::from_bytes(attempt.blob) else { return Credential::Unusable };
            return match attempt {
                _ if attempt.algorithm.uses_sha1 => Credential::Sha1(key),
                _ if !self.is_proven(attempt, key.key_data()) => Credential::Unusable,
                _ => Credential::Key { key, is_proven },
            };
        }
        let Ok(certificate) = Certificate::from_bytes(attempt.blob) else { return Credential::Unusable };
        if attempt.algorithm.uses_sha1 {
            return Credential::Sha1(PublicKey::new(certificate.public_key().clone(), ""));
        }
        if !self.is_proven(attempt, certificate.public_key()) || !proof::is_certified(&certificate) {
            return Credential::Unusable;
        }
        Credential::Certificate { certificate: Box::new(certificate), is_proven }
    }

    /// Whether the signature of the attempt is this key's. An attempt without a signature is no proof, and no error.
    fn is_proven(&self, attempt: &ByKey<'_>, key: &ssh_key::public::KeyData) -> bool {
        let Some((signed, mut blob)) = attempt.proof else { return true };
        if Reader::new(blob).string() != Ok(attempt.algorithm.signature.as_bytes()) {
            return false;
        }
        let Ok(signature) = Signature::decode(&mut blob) else { return false };
        let mut message = Vec::with_capacity(signed.len() + 68);
        message.put_string(self.session.as_deref().unwrap_or_default());
        message.extend_from_slice(signed);
        blob.is_empty() && proof::is_signed(key, &message, &signature)
    }
}
