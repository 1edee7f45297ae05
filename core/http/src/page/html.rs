//! The HTML frame of a page: its markup, its style, and its content security policy.

use std::fmt;

use http::StatusCode;

use super::Site;

/// The style of every page. `core/http/tests/it/looks.rs` computes the contrast of these colours.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2430;--soft:#566070;--paper:#f4f5f7;--card:#fff;--line:#e1e5ea;--edge:#7b8594;\
--mark:#a34a24;--fill:#a34a24;--on:#fff;--bad:#8c1d18;--badpaper:#fdecea}\
@media(prefers-color-scheme:dark){:root{--ink:#e8eaee;--soft:#a3adba;--paper:#14181e;--card:#1c2129;--line:#2d343f;\
--edge:#7d8898;--mark:#e99a72;--fill:#e99a72;--on:#1a1410;--bad:#ffc4bb;--badpaper:#42201c}}\
body{margin:0;min-height:100vh;display:grid;align-content:center;justify-items:center;gap:1rem;box-sizing:border-box;\
padding:1.5rem 4vw;background:var(--paper);color:var(--ink);font:16px/1.6 system-ui,sans-serif}\
header,main,footer{box-sizing:border-box;width:100%;max-width:34rem;overflow-wrap:anywhere}\
header{display:flex;align-items:center;gap:.6rem;font-weight:600}header a{color:inherit;text-decoration:none}\
.mark{flex:none;width:2rem;height:2rem;object-fit:contain;fill:var(--fill)}.mark path{fill:var(--on)}\
main{padding:1.75rem 2rem;background:var(--card);border:1px solid var(--line);border-radius:12px}\
h1{margin:0 0 .75rem;font-size:1.5rem;line-height:1.25}p{margin:.6rem 0}main>:last-child{margin-bottom:0}\
a{color:var(--mark)}code{font:.9em ui-monospace,monospace;padding:.1em .25em;border-radius:4px;background:var(--paper)}\
footer{color:var(--soft);font-size:.85rem}footer code{padding:0;background:none}\
:focus-visible{outline:2px solid var(--mark);outline-offset:2px}";

/// The style of forms and buttons.
pub const FORM_STYLE: &str = "\
h2{margin:1.75rem 0 .5rem;padding-top:1.25rem;border-top:1px solid var(--line);font-size:1.1rem;line-height:1.3}\
form{margin:1rem 0}.acts form,form>:last-child{margin-bottom:0}.acts form{margin:0}label{display:block;margin:.75rem 0}\
ul{margin:.6rem 0;padding-left:1.2rem}\
input{font:inherit;display:block;box-sizing:border-box;width:100%;margin-top:.2rem;padding:.5rem .65rem;\
border:1px solid var(--edge);border-radius:8px;background:var(--card);color:var(--ink)}input[type=hidden]{display:none}\
.acts{display:flex;flex-wrap:wrap;gap:.6rem;margin:1.1rem 0}\
button,a.act{font:inherit;font-weight:600;padding:.5rem 1.2rem;border:1px solid var(--fill);border-radius:8px;\
background:var(--fill);color:var(--on);cursor:pointer;text-decoration:none}\
button.other,a.other{border-color:var(--edge);background:none;color:var(--ink);font-weight:400}\
.wrong{margin:.75rem 0;padding:.6rem .9rem;border-radius:8px;background:var(--badpaper);color:var(--bad)}\
.wrong strong{font-weight:600}svg.code{display:block;max-width:100%;height:auto}";

/// The SHA-256 digests of [`STYLE`] and [`FORM_STYLE`], for the policy (W3C CSP Level 3 section 2.3.1).
const STYLE_SOURCES: &str =
    "'sha256-NDrOyo+V+zpnLGupCGfbCDvD2V4p2PhSn++B+FYpQ5c=' 'sha256-niff6xOJDRYutCEFGZkFAkSfYmABc79TnrG2b17w9/c='";

/// The content security policy of a page: no scripts, no other styles, no external images, no frames. `form_action`
/// lists the allowed targets of forms and of redirects behind them; `None` allows all.
#[must_use]
pub fn content_policy(form_action: Option<&str>) -> String {
    let forms = form_action.map(|sources| format!("; form-action {}", sources.trim_end())).unwrap_or_default();
    format!(
        "default-src 'none'; style-src {STYLE_SOURCES}; img-src data:; base-uri 'none'; frame-ancestors 'none'{forms}"
    )
}

/// A complete page around escaped HTML.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The installation.
    pub site: &'a Site,
    /// The link of the installation's name; `None` for no link.
    pub home: Option<&'a str>,
    /// The title.
    pub title: &'a str,
    /// The content, as escaped HTML.
    pub html: &'a str,
    /// Whether the page has a form or a button.
    pub has_form: bool,
    /// The status in the footer, if any.
    pub status: Option<StatusCode>,
    /// The error code in the footer, which operators find in the log. Empty for none.
    pub code: &'a str,
    /// The request's id, which is in the log.
    pub request_id: &'a str,
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, home, title, html, has_form, status, code, request_id } = *self;
        let (title, name) = (Escaped(title), Escaped(site.name()));
        writeln!(
            f,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"robots\" content=\"noindex\">\n<title>{title} - {name}</title>\n\
             <link rel=\"icon\" href=\"{}\">\n<style>{STYLE}</style>",
            Escaped(&site.icon_url())
        )?;
        if has_form {
            writeln!(f, "<style>{FORM_STYLE}</style>")?;
        }
        let mark = site.mark();
        match home {
            Some(home) => {
                writeln!(f, "</head>\n<body>\n<header>{mark}<a href=\"{}\">{name}</a></header>", Escaped(home))?
            }
            None => writeln!(f, "</head>\n<body>\n<header>{mark}<span>{name}</span></header>")?,
        }
        write!(f, "<main>\n<h1>{title}</h1>\n{html}\n</main>\n<footer>")?;
        if let Some(status) = status {
            write!(f, "{} &middot; ", status.as_u16())?;
        }
        if !code.is_empty() {
            write!(f, "<code>{}</code> &middot; ", Escaped(code))?;
        }
        writeln!(f, "Request <code>{}</code></footer>\n</body>\n</html>", Escaped(request_id))
    }
}

/// Text escaped for HTML, between tags or in a quoted attribute.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in self.0.split_inclusive(['&', '<', '>', '"', '\'']) {
            let (plain, special) = match piece.chars().next_back() {
                Some('&') => (&piece[..piece.len() - 1], "&amp;"),
                Some('<') => (&piece[..piece.len() - 1], "&lt;"),
                Some('>') => (&piece[..piece.len() - 1], "&gt;"),
                Some('"') => (&piece[..piece.len() - 1], "&quot;"),
                Some('\'') => (&piece[..piece.len() - 1], "&#39;"),
                _ => (piece, ""),
            };
            f.write_str(plain)?;
            f.write_str(special)?;
        }
        Ok(())
    }
}

/// Prose escaped for HTML, between tags. Text between two backticks becomes `<code>`.
#[derive(Debug, Clone, Copy)]
pub struct Prose<'a>(pub &'a str);

impl fmt::Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((before, behind)) = rest.split_once('`') {
            let Some((code, after)) = behind.split_once('`').filter(|(code, _)| !code.is_empty()) else { break };
            write!(f, "{}<code>{}</code>", Escaped(before), Escaped(code))?;
            rest = after;
        }
        write!(f, "{}", Escaped(rest))
    }
}
