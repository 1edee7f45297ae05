//! Refusals.

use crate::{ANNOTATION_PREFIX, AnnotationError, ObjectKey, annotations::Misfit};

/// Why an object, or a part of it, gets no socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The object.
    pub object: ObjectKey,
    /// The field that is wrong, such as `metadata.annotations[sallyport.dev/type]`.
    pub field: String,
    /// Why, in one word, for Events and conditions.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Refusal {
    /// The whole text for people: field, message and remedy.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}; {}", self.field, self.message, self.remedy)
    }
}

/// A refusal without its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    field: String,
    reason: &'static str,
    message: String,
    remedy: String,
}

/// The field of an annotation of this program.
pub(super) fn annotation_field(option: &str) -> String {
    format!("metadata.annotations[{ANNOTATION_PREFIX}{option}]")
}

impl Problem {
    pub(super) fn new(
        field: &str,
        reason: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { field: field.to_owned(), reason, message: message.into(), remedy: remedy.into() }
    }

    pub(super) fn of_annotation(error: &AnnotationError) -> Self {
        let field = format!("metadata.annotations[{}]", error.key);
        Self::new(&field, error.reason, error.message.clone(), error.remedy.clone())
    }

    pub(super) fn of_misfit(misfit: Misfit) -> Self {
        Self::new(&annotation_field(misfit.option), "InvalidAnnotation", misfit.message, misfit.remedy)
    }

    pub(super) fn of(self, object: &ObjectKey) -> Refusal {
        let Self { field, reason, message, remedy } = self;
        Refusal { object: object.clone(), field, reason, message, remedy }
    }
}
