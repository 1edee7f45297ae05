//! The offer of HTTP/3 to clients of HTTP/1 and HTTP/2 (`Alt-Svc`, RFC 7838), made only while the UDP port answers.

use http::{HeaderMap, HeaderValue, header::ALT_SVC};
use parking_lot::RwLock;
use tokio::sync::watch;

/// How long clients keep the offer, in seconds. A client whose network blocks UDP tries it once in a while and loads by
/// HTTP/2 meanwhile.
const MAX_AGE_SECONDS: u32 = 86_400;
/// Ends every earlier offer.
const CLEAR: &str = "clear";
/// After how many probes without an answer in a row the offer is taken back.
const MAX_FAILURES: u8 = 3;

/// The offer, shared by all requests.
#[derive(Debug)]
pub(crate) struct AltSvc {
    /// The UDP port that clients may use; `None` while there is no offer.
    port: watch::Sender<Option<u16>>,
    /// The value of the field; `None` before the first offer.
    value: RwLock<Option<HeaderValue>>,
}

impl Default for AltSvc {
    fn default() -> Self {
        Self { port: watch::Sender::new(None), value: RwLock::new(None) }
    }
}

impl AltSvc {
    /// Makes the offer of HTTP/3 at this port, or takes it back. Clients that know an earlier offer forget it.
    pub(crate) fn set_port(&self, port: Option<u16>) {
        let was_changed = self.port.send_if_modified(|known| std::mem::replace(known, port) != port);
        if !was_changed {
            return;
        }
        *self.value.write() = match port {
            Some(port) => HeaderValue::try_from(format!("h3=\":{port}\"; ma={MAX_AGE_SECONDS}")).ok(),
            //= RFC 7838 section 3
            //# When an Alt-Svc response header field is sent with the value "clear", the origin requests all
            //# alternatives for that origin to be invalidated
            None => Some(HeaderValue::from_static(CLEAR)),
        };
    }

    /// Has clients forget the offer of another process.
    pub(crate) fn withdraw(&self) {
        *self.value.write() = Some(HeaderValue::from_static(CLEAR));
    }

    /// The port of the offer, and its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<u16>> {
        self.port.subscribe()
    }

    /// Adds the field to a response of HTTP/1 or HTTP/2.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        if let Some(value) = &*self.value.read() {
            headers.insert(ALT_SVC, value.clone());
        }
    }
}

/// Whether the UDP port is reachable, as the probes so far say.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    is_reachable: bool,
    failures: u8,
}

impl Reachability {
    /// Records a probe. Returns whether the port is reachable: a single lost probe changes nothing.
    pub(crate) fn record(&mut self, has_answered: bool) -> bool {
        self.failures = if has_answered { 0 } else { self.failures.saturating_add(1) };
        self.is_reachable = has_answered || (self.is_reachable && self.failures < MAX_FAILURES);
        self.is_reachable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(alt_svc: &AltSvc) -> Option<String> {
        let mut headers = HeaderMap::new();
        alt_svc.add_to(&mut headers);
        headers.get(ALT_SVC).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn an_offer_is_made_and_taken_back() {
        let alt_svc = AltSvc::default();
        let port = alt_svc.subscribe();
        alt_svc.set_port(None);
        assert_eq!(field(&alt_svc), None, "no client knows an offer");
        alt_svc.set_port(Some(8443));
        assert_eq!(field(&alt_svc).as_deref(), Some("h3=\":8443\"; ma=86400"));
        assert_eq!(*port.borrow(), Some(8443));
        alt_svc.set_port(None);
        assert_eq!(field(&alt_svc).as_deref(), Some("clear"));
    }

    #[test]
    fn one_lost_probe_changes_nothing() {
        let mut reachability = Reachability::default();
        let mut record = |answers: &[bool]| answers.iter().fold(false, |_, is| reachability.record(*is));
        assert!(!record(&[false, false]), "nothing has answered yet");
        assert!(record(&[true]));
        assert!(record(&[false, false, true, false, false]));
        assert!(!record(&[false]), "three in a row");
        assert!(record(&[true]));
    }
}
