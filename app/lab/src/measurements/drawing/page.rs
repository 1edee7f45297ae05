//! One HTML page of reports, which needs nothing else.

use std::fmt::Write as _;

use super::escaped;
use crate::measurements::frame::{Outcome, Report};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{text-align:left;padding:.2em .8em;border-bottom:1px solid #ddd}\
    svg{max-width:100%;height:auto}.pass{color:#237a3b}.fail{color:#b3261e}.not-judged,.note{color:#777}";

/// The page of these reports.
#[must_use]
pub fn page(reports: &[Report]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>Measurements of Sallyport</title>\n<style>{STYLE}</style>\n\
         <h1>Measurements of Sallyport</h1>\n"
    );
    for report in reports {
        section(&mut html, report);
    }
    html += "</html>\n";
    html
}

fn section(html: &mut String, report: &Report) {
    let quick = if report.is_quick { " A quick run: few and short rounds." } else { "" };
    let _ = writeln!(
        html,
        "<h2 id=\"{0}\">{0}</h2>\n<p>Article: {1}. It said: {2}</p>\n<p class=\"note\">{3}; rounds: {4}.{quick}</p>",
        escaped(report.name),
        escaped(report.article.title),
        escaped(report.article.said),
        escaped(&report.machine.words()),
        report.rounds,
    );
    *html += &report.drawing;
    *html += "<table>\n<tr><th>variant</th>";
    for column in &report.columns {
        let _ = write!(html, "<th>{} {}</th>", escaped(column.name), escaped(column.unit));
    }
    *html += "<th></th></tr>\n";
    for row in &report.rows {
        let _ = write!(html, "<tr><td>{}</td>", escaped(&row.variant));
        for column in 0..report.columns.len() {
            let words = row.figures.get(column).map_or_else(|| "-".to_owned(), |spread| spread.words());
            let _ = write!(html, "<td>{}</td>", escaped(&words));
        }
        let _ = writeln!(html, "<td class=\"note\">{}</td></tr>", escaped(row.note()));
    }
    *html += "</table>\n<ul>\n";
    for verdict in &report.verdicts {
        let class = match verdict.outcome {
            Outcome::Pass => "pass",
            Outcome::Fail => "fail",
            Outcome::NotJudged => "not-judged",
        };
        let _ = writeln!(html, "<li class=\"{class}\">{}</li>", escaped(&verdict.words()));
    }
    *html += "</ul>\n";
}
