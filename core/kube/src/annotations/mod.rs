//! Annotations: whether an object wants a public name, and the options of its sockets.

mod nearest;
mod options;
mod read;
mod settings;
mod table;
mod values;

use std::collections::BTreeMap;

pub use options::{HealthProbe, Options};
pub use read::annotations;
pub(crate) use settings::Misfit;
pub use table::{OPTIONS, OptionKind, OptionRule};

/// What all annotations of this program begin with.
pub const ANNOTATION_PREFIX: &str = "sallyport.dev/";

/// The annotation that asks for a public name: `true` or `false`.
pub const EXPOSE_ANNOTATION: &str = "sallyport.dev/expose";

/// The annotation that the article used: the first port, as http.
pub const ARTICLE_ANNOTATION: &str = "mysocket.io/enabled";

/// The most annotations of this program on one object.
pub const MAX_ANNOTATIONS: usize = 500;

/// The most bytes of one annotation's value.
pub const MAX_ANNOTATION_BYTES: usize = 16 << 10;

/// Whether annotations ask for a public name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// No annotation asks for one.
    #[default]
    None,
    /// `sallyport.dev/expose: "false"`, whatever else asks for one.
    Never,
    /// `sallyport.dev/expose: "true"`.
    Expose,
    /// `mysocket.io/enabled: "true"`.
    Article,
}

/// An annotation that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotationError {
    /// Its key.
    pub key: String,
    /// Why, in one word.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// What the annotations of an object say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations {
    /// Whether they ask for a public name.
    pub wish: Wish,
    /// The options of all ports.
    pub general: Options,
    /// The options of one port each, by its name or number.
    pub ports: BTreeMap<String, Options>,
    /// What is refused.
    pub errors: Vec<AnnotationError>,
}

impl Annotations {
    /// The options of a port, by any of its words: its own ones, and the general ones beside.
    #[must_use]
    pub fn of_port(&self, words: &[&str]) -> Options {
        let mut options = Options::default();
        for own in words.iter().filter_map(|word| self.ports.get(*word)) {
            options = options.or(own);
        }
        options.or(&self.general)
    }
}
