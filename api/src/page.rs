//! Lists in pages.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How many items a page has by default.
pub const DEFAULT_PAGE_ITEMS: u32 = 50;
/// The most items of one page.
pub const MAX_PAGE_ITEMS: u32 = 100;

/// One page of a list, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page starts (goes into `?after=`); absent on the last page. Opaque: it may change its form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which things a list has.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LabelQuery {
    /// A label that they have, as `KEY=VALUE`, or as `KEY` for any value; at most four, of which they have all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[param(max_items = 4, example = json!(["env=prod"]))]
    pub label: Vec<String>,
}

/// Which page of a list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// How many items at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100, default = 50)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
