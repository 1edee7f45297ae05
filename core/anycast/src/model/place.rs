//! Which edges something is for.

use std::{fmt, str::FromStr};

use sallyport_model::{EdgeName, RegionName};
use serde::{Deserialize, Serialize};

/// Edges: all, those of a region, or one. A region is a site: its edges are beside one another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// All edges.
    #[default]
    Everywhere,
    /// The edges of a region.
    Region(RegionName),
    /// One edge.
    Edge(EdgeName),
}

impl Place {
    /// Whether this edge belongs to the place.
    #[must_use]
    pub fn has(&self, edge: &EdgeName, region: Option<&RegionName>) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Region(wanted) => region == Some(wanted),
            Self::Edge(wanted) => edge == wanted,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere => f.write_str("everywhere"),
            Self::Region(region) => write!(f, "region:{region}"),
            Self::Edge(edge) => write!(f, "edge:{edge}"),
        }
    }
}

impl FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "everywhere" => Ok(Self::Everywhere),
            Some(("region", name)) => Ok(Self::Region(name.parse().map_err(|error| format!("{error}"))?)),
            Some(("edge", name)) => Ok(Self::Edge(name.parse().map_err(|error| format!("{error}"))?)),
            _ => Err(format!("{text:?} is no place: use everywhere, region:NAME or edge:NAME")),
        }
    }
}
