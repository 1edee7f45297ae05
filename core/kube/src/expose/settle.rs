//! What several objects want, and only one can have.

use std::collections::BTreeMap;

use super::{
    Exposure, Exposures,
    refusal::{Problem, annotation_field},
};
use crate::{ExposureKey, Kind, ObjectKey};

/// What only one socket can have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    Domain(String),
    PublicPort(u16),
    Label(String),
    Name(String),
}

impl Claim {
    fn of(exposure: &Exposure) -> Vec<Self> {
        let spec = &exposure.spec;
        let mut claims: Vec<_> = spec.domains.iter().map(|domain| Self::Domain(domain.to_lowercase())).collect();
        claims.extend(spec.public_port.map(Self::PublicPort));
        claims.extend(spec.label.as_ref().map(|label| Self::Label(label.as_str().to_owned())));
        claims.push(Self::Name(spec.name.key()));
        claims
    }

    fn refusal(&self, exposure: &Exposure, winner: &ExposureKey) -> Problem {
        let is_ingress = exposure.key.object.kind == Kind::Ingress;
        let port = &exposure.key.port;
        let (what, option, remedy) = match self {
            Self::Domain(domain) if is_ingress => {
                let message = format!("the host {domain} belongs to {winner}, which asked first");
                let remedy = "change the host, or put the paths into that Ingress";
                return Problem::new("spec.rules", "DomainTaken", message, remedy);
            }
            Self::Domain(domain) => (format!("the domain {domain}"), "domain", "choose another domain"),
            Self::PublicPort(number) => {
                (format!("the public port {number}"), "public-port", "choose another port, or leave it out")
            }
            Self::Label(label) => (format!("the label {label}"), "name-label", "choose another label"),
            Self::Name(_) => (format!("the name {:?}", exposure.spec.name.as_str()), "name", "choose another name"),
        };
        let reason = match self {
            Self::Domain(_) => "DomainTaken",
            Self::PublicPort(_) => "PublicPortTaken",
            Self::Label(_) => "LabelTaken",
            Self::Name(_) => "NameTaken",
        };
        let message = format!("{what}, which {port} wants, belongs to {winner}, which asked first");
        Problem::new(&annotation_field(option), reason, message, remedy)
    }
}

/// Settles what several objects want: the older object gets it, and the younger one a refusal that names the winner.
/// The loser's socket stays as it is if it is there. What is held claims nothing.
pub fn settle(all: &mut BTreeMap<ObjectKey, Exposures>) {
    let mut order: Vec<(i64, ExposureKey)> = Vec::new();
    for exposure in all.values().flat_map(Exposures::to_make) {
        order.push((exposure.created, exposure.key.clone()));
    }
    order.sort_unstable();
    let mut owners: BTreeMap<Claim, ExposureKey> = BTreeMap::new();
    for (_, key) in order {
        let Some(exposures) = all.get_mut(&key.object) else { continue };
        let Some(exposure) = exposures.desired.iter_mut().find(|one| one.key == key) else { continue };
        let claims = Claim::of(exposure);
        let taken = claims.iter().find_map(|claim| owners.get(claim).map(|winner| (claim, winner)));
        match taken {
            None => owners.extend(claims.into_iter().map(|claim| (claim, key.clone()))),
            Some((claim, winner)) => {
                let problem = claim.refusal(exposure, winner);
                exposure.is_held = true;
                exposures.refusals.push(problem.of(&key.object));
            }
        }
    }
}
