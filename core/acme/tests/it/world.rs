//! A certificate, its CAs and a clock for the tests.

use sallyport_acme_schedule::{
    Authority, Directories, Directory, Failure, Issued, RenewalAnswer, RenewalWindow, Schedule, Step, WaitReason,
};
use time::{Duration, OffsetDateTime, macros::datetime};

pub(crate) const START: OffsetDateTime = datetime!(2026-03-01 00:00 UTC);
pub(crate) const PRIMARY: &str = "https://acme-v02.api.letsencrypt.org/directory";
pub(crate) const FALLBACK: &str = "https://ca.example/directory";
pub(crate) const ACCOUNT: &str = "https://ca.example/account/1";

pub(crate) fn authority(directory_url: &str) -> Authority {
    Authority { directory_url: directory_url.to_owned(), account_url: Some(ACCOUNT.to_owned()) }
}

pub(crate) struct World {
    pub(crate) directories: Directories,
    pub(crate) schedule: Schedule,
    pub(crate) now: OffsetDateTime,
    pub(crate) random: u64,
}

impl World {
    /// Two CAs, one of them with a staging directory, and no certificate.
    pub(crate) fn new() -> Self {
        let directories = Directories::new(authority(PRIMARY), Some(authority(FALLBACK)));
        Self { directories, schedule: Schedule::new(vec!["a.test".to_owned()]), now: START, random: 0 }
    }

    /// The same with a certificate of this lifetime, without renewal information.
    pub(crate) fn with_certificate(lifetime: Duration) -> Self {
        let mut world = Self::new();
        world.issue(PRIMARY, lifetime);
        world.schedule.inform(RenewalAnswer::Unsupported, world.now, 0);
        world
    }

    pub(crate) fn step(&self) -> Step {
        self.schedule.next_step(&self.directories, self.now)
    }

    /// The directory of the order that is due, and whether it replaces a certificate.
    pub(crate) fn order(&self) -> (Directory, bool) {
        match self.step() {
            Step::Order { directory, replaces, .. } => (directory, replaces),
            other => panic!("{other:?}"),
        }
    }

    /// The wait until the next step.
    pub(crate) fn wait(&self) -> (Duration, WaitReason) {
        match self.step() {
            Step::Wait { until, reason } => (until - self.now, reason),
            other => panic!("{other:?}"),
        }
    }

    /// Lets the clock go on until there is something to do.
    pub(crate) fn sleep(&mut self) -> Duration {
        let (length, _) = self.wait();
        self.now += length;
        length
    }

    pub(crate) fn issue(&mut self, directory_url: &str, lifetime: Duration) {
        let issued = Issued {
            not_before: self.now,
            not_after: self.now + lifetime,
            directory_url: directory_url.to_owned(),
            account_url: ACCOUNT.to_owned(),
        };
        self.schedule.issue(issued, self.now, self.random);
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        let (directory, _) = self.order();
        self.schedule.fail(&self.directories, directory, failure, self.now, self.random);
    }

    pub(crate) fn suggest(&mut self, from: Duration, to: Duration) {
        let window = RenewalWindow { start: self.now + from, end: self.now + to };
        let answer = RenewalAnswer::Window { window, explanation_url: None, ask_again_after: Duration::hours(6) };
        self.schedule.inform(answer, self.now, self.random);
    }
}
