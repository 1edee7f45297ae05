//! Applying a configuration, so that a wrong one leaves what was announced before.

use std::{collections::BTreeMap, path::Path, time::Duration};

use ipnet::IpNet;
use sallyport_anycast::{
    bird::{ConfigurationError, ConfigureAnswer, EdgePart, Version, configuration},
    model::{Announcement, Community},
};

use crate::{Bird, BirdError, FileError, file};

/// After how many seconds BIRD goes back by itself to the former configuration.
const UNDO_AFTER_S: u16 = 30;
/// How often exports are looked at until they are what they should be, and how long that is waited between. What RPKI
/// may have refused is waited for shortly.
const MAX_LOOKS: u32 = 40;
const MAX_LOOKS_BY_RPKI: u32 = 6;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A configuration holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The version of BIRD.
    pub version: Version,
    /// What this version cannot do, each in a sentence.
    pub missing: Vec<String>,
    /// What neighbours do not hear although it is announced.
    pub unheard: Vec<Unheard>,
    /// The neighbours without a session.
    pub without_session: Vec<String>,
}

/// A prefix that a neighbour does not hear. Its export filter refuses only what RPKI calls invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{net} is not announced to {peer}: {}", if *.has_rpki { "RPKI calls it invalid" } else { "BIRD refuses it" })]
pub struct Unheard {
    /// Whether RPKI is asked.
    pub has_rpki: bool,
    /// The prefix.
    pub net: IpNet,
    /// The neighbour's name.
    pub peer: String,
}

/// Why a configuration does not hold. What was announced before stays.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// There is none.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// BIRD refuses it, or does not answer.
    #[error(transparent)]
    Bird(#[from] BirdError),
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// BIRD does not read the file.
    #[error("BIRD does not read {0}: put `include \"{0}\";` into the file that it was started with")]
    NotIncluded(String),
    /// BIRD went back by itself.
    #[error("BIRD went back to the former configuration: this one was not confirmed within {UNDO_AFTER_S} s")]
    TooLate,
    /// BIRD announces something else.
    #[error("BIRD did not do as it was told: to {peer} it {what} {net}")]
    Wrong {
        /// The neighbour's name.
        peer: String,
        /// What it does instead.
        what: &'static str,
        /// The prefix.
        net: IpNet,
    },
}

impl Bird {
    /// Applies the part of an edge: writes the file, has BIRD check it and load it, looks at what goes to neighbours,
    /// and confirms. After a failure the former file is back, and BIRD announces what it announced before.
    ///
    /// # Errors
    /// The configuration does not hold.
    pub async fn apply(&mut self, part: &EdgePart, path: &Path) -> Result<Applied, ApplyError> {
        let version = self.version().await?;
        let new = configuration(part, version)?;
        let former = file::read(path).await?;
        if former != new.text {
            file::replace(path, &new.text).await?;
        }
        let (unheard, without_session) = match self.load(part, path).await {
            Ok(found) => found,
            Err(error) => {
                if former != new.text {
                    file::replace(path, &former).await?;
                }
                return Err(error);
            }
        };
        Ok(Applied { version, missing: new.missing, unheard, without_session })
    }

    async fn load(&mut self, part: &EdgePart, path: &Path) -> Result<(Vec<Unheard>, Vec<String>), ApplyError> {
        self.check(None).await?;
        self.configure(None, Some(UNDO_AFTER_S)).await?;
        let result = match self.verify(part, path).await {
            Ok(found) => match self.confirm().await {
                Ok(ConfigureAnswer::Confirmed) => Ok(found),
                Ok(_) => Err(ApplyError::TooLate),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error),
        };
        if result.is_err() {
            // If this fails too, BIRD does it by itself, since nothing is confirmed.
            let _ = self.undo().await;
        }
        result
    }

    /// Looks at the exports until they are as they should be.
    async fn verify(&mut self, part: &EdgePart, path: &Path) -> Result<(Vec<Unheard>, Vec<String>), ApplyError> {
        let mut result = self.look(part, path).await;
        let unheard_looks = if part.rpki.is_empty() { MAX_LOOKS } else { MAX_LOOKS_BY_RPKI };
        for look in 1..MAX_LOOKS {
            let is_final = match &result {
                Ok((unheard, _)) => unheard.is_empty() || look >= unheard_looks,
                // Protocols begin a moment after BIRD says that it is done.
                Err(error) => !matches!(error, ApplyError::Wrong { .. } | ApplyError::NotIncluded(_)),
            };
            if is_final {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            result = self.look(part, path).await;
        }
        result
    }

    async fn look(&mut self, part: &EdgePart, path: &Path) -> Result<(Vec<Unheard>, Vec<String>), ApplyError> {
        let announced = match self.announced().await {
            Ok(announced) => announced,
            // The tables do not exist.
            Err(BirdError::Reply(_)) => return Err(ApplyError::NotIncluded(path.display().to_string())),
            Err(error) => return Err(error.into()),
        };
        let wanted: BTreeMap<IpNet, Announcement> = part
            .prefixes
            .iter()
            .filter(|one| one.state != Announcement::Withdrawn)
            .map(|one| (one.net, one.state))
            .collect();
        if announced != wanted {
            return Err(ApplyError::NotIncluded(path.display().to_string()));
        }
        let (mut unheard, mut without_session) = (Vec::new(), Vec::new());
        for peer in &part.peers {
            let Some(exported) = self.routes_exported(&peer.name).await? else {
                without_session.push(peer.name.clone());
                continue;
            };
            let wrong = |what, net| ApplyError::Wrong { peer: peer.name.clone(), what, net };
            let mut left: BTreeMap<IpNet, Announcement> = wanted.clone();
            left.retain(|net, _| net.addr().is_ipv4() == peer.address.is_ipv4());
            for route in exported {
                let is_low = route.communities.contains(&Community::GRACEFUL_SHUTDOWN);
                match left.remove(&route.net) {
                    None => return Err(wrong("still announces", route.net)),
                    Some(Announcement::Deprioritised) if !is_low => {
                        return Err(wrong("does not deprioritise", route.net));
                    }
                    // A neighbour or a prefix may have the community always.
                    Some(_) => {}
                }
            }
            unheard.extend(left.into_keys().map(|net| Unheard {
                has_rpki: !part.rpki.is_empty(),
                net,
                peer: peer.name.clone(),
            }));
        }
        Ok((unheard, without_session))
    }
}
