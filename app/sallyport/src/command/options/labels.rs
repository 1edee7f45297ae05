//! Options for labels: of a new thing, of one that changes, and of those that a list has.

use clap::Args;
use sallyport_model::{Label, LabelError, LabelSelector, Labels};

use crate::failure::Failure;

/// The labels of a new thing.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LabelsArgs {
    /// A label to find it again by; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
}

impl LabelsArgs {
    /// The labels.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn get(&self) -> Result<Labels, Failure> {
        let mut labels = Labels::default();
        set_all(&mut labels, &self.labels)?;
        Ok(labels)
    }

    /// The labels after the change; `None` if nothing changes.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn added_to(&self, now: &Labels) -> Result<Option<Labels>, Failure> {
        let mut labels = now.clone();
        set_all(&mut labels, &self.labels)?;
        Ok(Some(labels).filter(|labels| labels != now))
    }
}

/// Changes of labels.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ChangedLabelsArgs {
    /// Give it this label, or give the label this value; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// Take this label away; may be given several times
    #[arg(long = "no-label", value_name = "KEY")]
    removed: Vec<String>,
}

impl ChangedLabelsArgs {
    /// Whether no change is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.removed.is_empty()
    }

    /// The labels after the change; `None` if no change is given.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn change(&self, now: &Labels) -> Result<Option<Labels>, Failure> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut labels = now.clone();
        self.removed.iter().for_each(|key| labels.remove(key));
        set_all(&mut labels, &self.labels)?;
        Ok(Some(labels))
    }
}

/// The labels of the things in a list.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LabelSelectorArgs {
    /// Only those with this label, and with this value if one is given; may be given several times
    #[arg(long = "label", value_name = "KEY[=VALUE]")]
    pub(crate) labels: Vec<LabelSelector>,
}

fn set_all(labels: &mut Labels, given: &[Label]) -> Result<(), Failure> {
    let set = |Label { key, value }: &Label| labels.set(key, value);
    given.iter().try_for_each(set).map_err(|error: LabelError| Failure::usage(error.to_string()))
}
