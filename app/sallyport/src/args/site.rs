//! The name and icon of the installation, for visitors.

use std::{io::Read as _, path::PathBuf};

use anyhow::Context as _;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::Args;
use sallyport_api::EdgeBootstrap;
use sallyport_http::page::{MAX_SITE_ICON_BYTES, Site};

use crate::failure::Failure;

/// Options for the name and icon.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SiteArgs {
    /// The name of the installation on the pages that visitors see [default: its domain]
    #[arg(long, value_name = "NAME", env = "SALLYPORT_SITE_NAME")]
    site_name: Option<String>,
    /// The mark of the installation on these pages: an SVG or PNG file of at most 8 KiB [default: an open gate]
    #[arg(long, value_name = "FILE", env = "SALLYPORT_SITE_ICON")]
    site_icon: Option<PathBuf>,
}

impl SiteArgs {
    /// The name and icon for pages.
    ///
    /// # Errors
    /// The name or the icon cannot be used.
    pub(crate) fn open(&self, domain: &str) -> anyhow::Result<Site> {
        let icon = self.icon()?;
        let site = with(Site::of_domain(domain), self.site_name.as_deref(), icon.as_deref());
        site.map_err(|error| Failure::usage(error.to_string()).next("see --site-name and --site-icon").into())
    }

    /// Adds both to the configuration of edges.
    ///
    /// # Errors
    /// The icon cannot be read.
    pub(crate) fn write_into(&self, bootstrap: &mut EdgeBootstrap) -> anyhow::Result<()> {
        bootstrap.site_name.clone_from(&self.site_name);
        bootstrap.site_icon = self.icon()?.map(|picture| URL_SAFE_NO_PAD.encode(picture));
        Ok(())
    }

    fn icon(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(path) = &self.site_icon else { return Ok(None) };
        let mut picture = Vec::new();
        std::fs::File::open(path)
            // One byte more, to detect a file that is too large.
            .and_then(|file| file.take(MAX_SITE_ICON_BYTES as u64 + 1).read_to_end(&mut picture))
            .with_context(|| format!("cannot read the mark of the installation {}", path.display()))?;
        Ok(Some(picture))
    }
}

/// The name and icon from an edge's configuration; invalid parts are left out.
pub(crate) fn site_of(bootstrap: &EdgeBootstrap) -> Site {
    let icon = bootstrap.site_icon.as_ref().and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let plain = Site::of_domain(&bootstrap.domain);
    with(plain.clone(), bootstrap.site_name.as_deref(), icon.as_deref()).unwrap_or(plain)
}

fn with(site: Site, name: Option<&str>, icon: Option<&[u8]>) -> Result<Site, sallyport_http::page::SiteError> {
    let site = match name {
        Some(name) => site.named(name)?,
        None => site,
    };
    match icon {
        Some(picture) => site.with_icon(picture),
        None => Ok(site),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(name: Option<&str>, icon: Option<PathBuf>) -> SiteArgs {
        SiteArgs { site_name: name.map(str::to_owned), site_icon: icon }
    }

    #[test]
    fn edges_show_what_control_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let icon = dir.path().join("mark.svg");
        std::fs::write(&icon, "<svg xmlns=\"http://www.w3.org/2000/svg\"/>").unwrap();
        let given = args(Some("Smith & Sons"), Some(icon.clone()));
        let bootstrap = r#"{"domain":"example.com","ca":"","node_ca":"","controls":[],"bus":[],"seal_key":"","assertion_key":"","affinity_key":""}"#;
        let mut bootstrap: EdgeBootstrap = serde_json::from_str(bootstrap).unwrap();
        assert_eq!(site_of(&bootstrap), Site::of_domain("example.com"), "from a control without a site name");
        given.write_into(&mut bootstrap).unwrap();
        assert_eq!(site_of(&bootstrap), given.open("example.com").unwrap());
        assert_eq!(site_of(&bootstrap).name(), "Smith & Sons");
        bootstrap.site_name = Some(String::new());
        assert_eq!(site_of(&bootstrap), Site::of_domain("example.com"), "what cannot be used is left out");

        std::fs::write(&icon, vec![b' '; MAX_SITE_ICON_BYTES + 1]).unwrap();
        for (wrong, says) in [
            (args(Some("a\nb"), None), "control characters"),
            (args(None, Some(icon)), "are the most"),
            (args(None, Some(dir.path().join("none.svg"))), "cannot read the mark"),
        ] {
            let error = format!("{:#}", wrong.open("example.com").unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }
}
