//! The style, the content policy and the installation's identity on pages.

use std::collections::HashMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;
use sallyport_http::page::{
    FORM_STYLE, Frame, MAX_SITE_ICON_BYTES, MAX_SITE_NAME_CHARS, STYLE, Site, SiteError, content_policy,
};
use sha2::{Digest, Sha256};

/// The colours of the light and of the dark scheme.
fn colours() -> [HashMap<&'static str, [f64; 3]>; 2] {
    let (light, rest) = STYLE.split_once("@media(prefers-color-scheme:dark)").unwrap();
    let dark = rest.split("}}").next().unwrap();
    [light, dark].map(|text| {
        let body = text.split_once('{').unwrap().1;
        let body = body.split_once("--").map(|(_, rest)| format!("--{rest}")).unwrap();
        let pairs = body.leak().split([';', '{', '}']).filter_map(|item| item.trim().split_once(":#"));
        pairs.filter_map(|(name, colour)| Some((name.strip_prefix("--")?, channels(colour)))).collect()
    })
}

/// `a34a24` or `fff` as channels from 0 to 1.
fn channels(colour: &str) -> [f64; 3] {
    let wide: String = if colour.len() == 3 { colour.chars().flat_map(|c| [c, c]).collect() } else { colour.into() };
    assert_eq!(wide.len(), 6, "{colour}");
    [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&wide[at..at + 2], 16).unwrap()) / 255.0)
}

/// The contrast of two colours (WCAG 2.2, "contrast ratio").
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let [r, g, b] = colour.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn contrast_meets_wcag_in_both_colour_schemes() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 0.001);
    for (scheme, colours) in ["light", "dark"].into_iter().zip(colours()) {
        let colour = |name: &str| *colours.get(name).unwrap_or_else(|| panic!("{scheme} has no {name}: {colours:?}"));
        // WCAG 2.2 success criterion 1.4.3: 4.5 for text; 1.4.11: 3 for what is needed to see fields and the focus.
        for (front, back, least) in [
            ("ink", "paper", 4.5),
            ("ink", "card", 4.5),
            ("soft", "paper", 4.5),
            ("soft", "card", 4.5),
            ("mark", "paper", 4.5),
            ("mark", "card", 4.5),
            ("on", "fill", 4.5),
            ("bad", "badpaper", 4.5),
            ("edge", "card", 3.0),
            ("edge", "paper", 3.0),
            ("fill", "card", 3.0),
            ("fill", "paper", 3.0),
        ] {
            let ratio = contrast(colour(front), colour(back));
            assert!(ratio >= least, "{scheme}: {front} on {back} has {ratio:.2}, and {least} is the least");
        }
    }
    // All other rules use these colours.
    for style in [STYLE.rsplit_once("}}").unwrap().1, FORM_STYLE] {
        assert!(!style.contains('#') && !style.contains("rgb"), "{style}");
    }
}

#[test]
fn the_content_policy_has_the_digests_of_the_styles() {
    let policy = content_policy(Some("'self' https://login.example.com"));
    for style in [STYLE, FORM_STYLE] {
        let digest = STANDARD.encode(Sha256::digest(style));
        assert!(policy.contains(&format!("'sha256-{digest}'")), "put 'sha256-{digest}' into STYLE_SOURCES");
    }
    assert!(!policy.contains("unsafe") && policy.ends_with("form-action 'self' https://login.example.com"), "{policy}");
    assert!(!content_policy(None).contains("form-action"));
}

fn page(site: &Site, home: Option<&str>) -> String {
    let frame = Frame {
        site,
        home,
        title: "Log in",
        html: "<p>Hello.</p>",
        has_form: true,
        status: Some(StatusCode::NOT_FOUND),
        code: "unknown-name",
        request_id: "00ff",
    };
    frame.to_string()
}

#[test]
fn a_page_shows_name_and_mark_of_the_installation() {
    let plain = Site::of_domain("tunnels.example.com");
    assert_eq!(plain.name(), "tunnels.example.com");
    let text = page(&plain, None);
    assert!(text.contains("<title>Log in - tunnels.example.com</title>"), "{text}");
    assert!(text.contains("<svg class=\"mark\"") && text.contains("<span>tunnels.example.com</span>"), "{text}");
    let named = plain.named("  Smith & Sons ").unwrap();
    let text = page(&named, Some("/"));
    assert!(text.contains("<a href=\"/\">Smith &amp; Sons</a>"), "{text}");
    let picture = b"<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>";
    let url = format!("data:image/svg+xml;base64,{}", STANDARD.encode(picture));
    let text = page(&named.clone().with_icon(picture).unwrap(), None);
    assert!(text.contains(&format!("<img class=\"mark\" src=\"{url}\" alt=\"\">")), "{text}");
    assert!(text.contains(&format!("<link rel=\"icon\" href=\"{url}\">")), "{text}");
    let png = [&b"\x89PNG\r\n\x1a\n"[..], &[0; 32]].concat();
    assert!(page(&named.with_icon(&png).unwrap(), None).contains("data:image/png;base64,"));
}

#[test]
fn invalid_names_and_marks_are_refused() {
    let site = || Site::of_domain("example.com");
    for name in ["", "   ", "a\nb", &"x".repeat(MAX_SITE_NAME_CHARS + 1)] {
        assert_eq!(site().named(name), Err(SiteError::Name), "{name}");
    }
    assert!(site().named(&"\u{e9}".repeat(MAX_SITE_NAME_CHARS)).is_ok());
    let large = [&b"<svg"[..], &vec![b' '; MAX_SITE_ICON_BYTES - 3]].concat();
    assert_eq!(site().with_icon(&large), Err(SiteError::TooLarge(MAX_SITE_ICON_BYTES + 1)));
    assert!(site().with_icon(&large[..MAX_SITE_ICON_BYTES]).is_ok());
    for wrong in [&b"GIF89a"[..], b"", b"\xff\xd8\xff", b"<html>", b"\xff<svg"] {
        assert_eq!(site().with_icon(wrong), Err(SiteError::Kind), "{wrong:?}");
    }
}
