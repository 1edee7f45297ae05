//! A QR code as an SVG image.

use qrcode::{Color, EcLevel, QrCode};

/// The width of the quiet zone (ISO/IEC 18004 section 5.3.8).
const QUIET_MODULES: usize = 4;

/// The QR code of the text as SVG; `None` if the text is too long.
pub(super) fn svg(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text.as_bytes(), EcLevel::M).ok()?;
    let width = code.width();
    let side = width + 2 * QUIET_MODULES;
    let mut path = String::new();
    for (at, color) in code.to_colors().into_iter().enumerate() {
        if color == Color::Dark {
            path.push_str(&format!("M{} {}h1v1h-1z", at % width + QUIET_MODULES, at / width + QUIET_MODULES));
        }
    }
    Some(format!(
        "<svg class=\"code\" xmlns=\"http://www.w3.org/2000/svg\" width=\"240\" height=\"240\" \
         viewBox=\"0 0 {side} {side}\" role=\"img\" aria-label=\"QR code\" shape-rendering=\"crispEdges\">\
         <path fill=\"#fff\" d=\"M0 0h{side}v{side}h-{side}z\"/><path fill=\"#000\" d=\"{path}\"/></svg>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_size_of_its_code_and_nothing_too_long_has_one() {
        let picture = svg("otpauth://totp/a:b?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ").unwrap();
        assert!(picture.starts_with("<svg ") && picture.contains("viewBox=\"0 0 41 41\""), "{picture:.200}");
        // The corner of a finder pattern is dark, and what is around it is not.
        assert!(picture.contains("M4 4h1") && !picture.contains("M3 3h1"));
        assert!(svg(&"x".repeat(5_000)).is_none());
    }
}
