//! The companion that takes packets out of their encapsulation.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use sallyport_model::Encapsulation;
use tokio::{process::Command, time::Instant};

use super::{BalancedSettings, Plan};

/// The longest time that the companion may take.
const TIME: Duration = Duration::from_secs(20);
/// How often it is started again although nothing has changed: somebody may have taken its programs away.
const AGAIN_EVERY: Duration = Duration::from_secs(60);
/// The most characters of what it says.
const MAX_SAID_CHARS: usize = 300;

/// Decapsulation at this machine.
pub(super) struct Decapsulation {
    program: Option<PathBuf>,
    pins: Option<PathBuf>,
    syn_cookies: Option<u32>,
    /// What stands, on which device, and since when.
    stands: Option<(Plan, String, Instant)>,
}

impl Decapsulation {
    pub(super) fn new(settings: &BalancedSettings) -> Self {
        Self {
            program: settings.program.clone(),
            pins: settings.pins.clone(),
            syn_cookies: settings.syn_cookies,
            stands: None,
        }
    }

    /// Has packets of this plan taken out at the device. An error says why not, in one sentence.
    pub(super) async fn bring_up(&mut self, plan: &Plan, device: &str) -> Result<(), String> {
        if let Some((known, at, since)) = &self.stands
            && (known, at.as_str()) == (plan, device)
            && since.elapsed() < AGAIN_EVERY
        {
            return Ok(());
        }
        self.stands = None;
        self.ask(arguments(plan, device, self.syn_cookies)).await?;
        self.stands = Some((plan.clone(), device.to_owned(), Instant::now()));
        Ok(())
    }

    /// Ends decapsulation, if this process has begun it.
    pub(super) async fn take_down(&mut self) {
        if self.stands.take().is_some()
            && let Err(error) = self.ask(["decap", "down"].map(OsString::from).to_vec()).await
        {
            tracing::warn!(%error, "encapsulated packets are still taken out here");
        }
    }

    async fn ask(&self, arguments: Vec<OsString>) -> Result<(), String> {
        let program = self.program.as_ref().ok_or_else(|| {
            "the companion sallyport-packet is neither beside sallyport nor on PATH: install it".to_owned()
        })?;
        let mut command = Command::new(program);
        if let Some(pins) = &self.pins {
            command.arg("--pins").arg(pins);
        }
        command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null()).kill_on_drop(true);
        let ended = tokio::time::timeout(TIME, command.output()).await;
        let output = match ended {
            Err(_) => return Err(format!("sallyport-packet has not ended within {} seconds", TIME.as_secs())),
            Ok(Err(error)) => return Err(format!("{} cannot be started: {error}", program.display())),
            Ok(Ok(output)) => output,
        };
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it says nothing");
        let line: String = line.chars().filter(|c| !c.is_control()).take(MAX_SAID_CHARS).collect();
        Err(format!("decapsulation is not up: {line}"))
    }
}

/// The command line for a plan.
fn arguments(plan: &Plan, device: &str, syn_cookies: Option<u32>) -> Vec<OsString> {
    let mut words = ["decap", "up", "--dev", device].map(OsString::from).to_vec();
    for (option, addresses) in [("--from", &plan.balancers), ("--mate", &plan.mates), ("--address", &plan.addresses)] {
        if !addresses.is_empty() {
            words.push(option.into());
            words.push(addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",").into());
        }
    }
    // A packet of IPIP names no second edge.
    if plan.encapsulation == Encapsulation::Ipip {
        words.push("--no-second-chance".into());
    }
    if let Some(per_second) = syn_cookies {
        words.extend(["--syn-cookies".into(), per_second.to_string().into()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(mates: &[&str], encapsulation: Encapsulation) -> Plan {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Plan {
            encapsulation,
            addresses: all(&["198.51.100.1", "2001:db8::1"]),
            balancers: all(&["192.0.2.5"]),
            mates: all(mates),
        }
    }

    #[test]
    fn the_companion_gets_what_is_to_stand() {
        let words = |plan: &Plan, cookies| arguments(plan, "eth0", cookies).join(" ".as_ref()).into_string().unwrap();
        let two = plan(&["192.0.2.11", "192.0.2.12"], Encapsulation::Gue);
        assert_eq!(
            words(&two, None),
            "decap up --dev eth0 --from 192.0.2.5 --mate 192.0.2.11,192.0.2.12 --address 198.51.100.1,2001:db8::1"
        );
        let alone = plan(&[], Encapsulation::Ipip);
        assert_eq!(
            words(&alone, Some(500)),
            "decap up --dev eth0 --from 192.0.2.5 --address 198.51.100.1,2001:db8::1 --no-second-chance \
             --syn-cookies 500"
        );
    }

    #[tokio::test]
    async fn a_companion_that_fails_or_is_missing_is_told_in_one_sentence() {
        let of = |program: Option<&str>| Decapsulation {
            program: program.map(PathBuf::from),
            pins: None,
            syn_cookies: None,
            stands: None,
        };
        let (plan, dev) = (plan(&[], Encapsulation::Gue), "eth0");
        let missing = of(None).bring_up(&plan, dev).await.unwrap_err();
        assert!(missing.contains("neither beside sallyport nor on PATH"), "{missing}");
        let failed = of(Some("/bin/false")).bring_up(&plan, dev).await.unwrap_err();
        assert_eq!(failed, "decapsulation is not up: it says nothing");
        let gone = of(Some("/nonexistent/sallyport-packet")).bring_up(&plan, dev).await.unwrap_err();
        assert!(gone.contains("cannot be started"), "{gone}");
        let mut well = of(Some("/bin/true"));
        well.bring_up(&plan, dev).await.unwrap();
        assert!(well.stands.is_some());
    }
}
