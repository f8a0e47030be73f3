//! What a refusal of the Cloud API means for a message. The code in the reply decides, never the HTTP status: throttling
//! comes as 400 or as 429. Pure.
//!
//! Codes: Meta's error reference (support/error-codes).

use askd_core::Trouble;
use std::time::Duration;

/// How to go on after a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Worth another try, not before this pause.
    Retry(Option<Duration>, Trouble),
    /// The person has to write first.
    WindowClosed,
    /// The template does not have the parameters that were sent.
    TemplateParameters,
    /// Every message would get it until an operator has mended something: the class of the trouble and, for the operator, its reason and its fix.
    Barred(Trouble, String),
    /// No retry will help: the class of the trouble and, for the operator, its reason and its fix.
    Never(Trouble, String),
}

/// The customer service window is closed.
pub(super) const WINDOW_CLOSED: u64 = 131_047;
/// The pair limit: wait 4^tries seconds (Meta's overview).
const PAIR: u64 = 131_056;

/// What `code` means; `message` is Meta's. `attempt`: which try it was, for pauses that grow with it.
pub(super) fn verdict(code: u64, message: &str, attempt: u8) -> Verdict {
    let limited = |seconds| Verdict::Retry(Some(Duration::from_secs(seconds)), Trouble::RateLimited);
    let (trouble, fix) = match code {
        PAIR => return limited(4_u64.saturating_pow(u32::from(attempt.min(4)))),
        4 | 80_007 | 130_429 => return limited(4),
        131_048 => return limited(64),
        1 | 2 | 131_000 | 131_016 | 131_057 | 133_004 | 133_016 => return Verdict::Retry(None, Trouble::Unknown),
        WINDOW_CLOSED => return Verdict::WindowClosed,
        132_000 => return Verdict::TemplateParameters,
        131_008 | 131_009 => (Trouble::ChatNotFound, "WhatsApp does not know the number of the route; check chat"),
        131_021 => (Trouble::ChatNotFound, "the number of the route is the business's own; set another chat"),
        131_026 => (Trouble::ChatNotFound, "the person cannot be reached on WhatsApp; check the number of the route"),
        131_030 => (
            Trouble::ChatNotFound,
            "the number is not in the test number's list of recipients; add it, or use a real number",
        ),
        131_062 => {
            (Trouble::ChatNotFound, "this business-scoped id cannot be written to; set the person's number as chat")
        }
        _ => (Trouble::Refused, fix(code).unwrap_or(message)),
    };
    let why = format!("WhatsApp refused it ({code}): {fix}");
    if concerns_all(code).is_some() { Verdict::Barred(trouble, why) } else { Verdict::Never(trouble, why) }
}

/// What the operator can do about other refusals.
fn fix(code: u64) -> Option<&'static str> {
    Some(match code {
        0 | 10 | 190 | 200..=299 | 131_005 => {
            "the access token is not valid or may not send; make a new one and set whatsapp.access_token"
        }
        100 => "the request or the phone_number_id is wrong; check whatsapp.phone_number_id and api_url",
        368 | 131_031 => "the account is blocked or locked; see the account's quality page at Meta",
        130_472 | 131_049 => "Meta chose not to deliver it; use another route",
        131_042 => "there is a payment problem with the account; fix it at Meta",
        131_051 => "this type of message is not supported",
        132_001 => "there is no such template in this language; check whatsapp.template and template_language",
        132_005..=132_016 => "the template does not fit or is paused; see it in Meta's template manager",
        133_010 => "the number of the business is not registered; register it at Meta",
        _ => return None,
    })
}

/// What the operator can do about a refusal that every message would get.
pub(super) fn concerns_all(code: u64) -> Option<&'static str> {
    matches!(code, 0 | 10 | 190 | 200..=299 | 368 | 131_005 | 131_031 | 131_042 | 133_010).then(|| fix(code)).flatten()
}

/// Whether any call would get this refusal, and not messages alone.
pub(super) const fn is_about_the_token(code: u64) -> bool {
    matches!(code, 0 | 190)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_tried_again_and_what_does_not_says_how_to_mend_it() {
        assert_eq!(verdict(131_056, "", 1), Verdict::Retry(Some(Duration::from_secs(4)), Trouble::RateLimited));
        assert_eq!(verdict(131_056, "", 3), Verdict::Retry(Some(Duration::from_secs(64)), Trouble::RateLimited));
        for passing in [4, 80_007, 130_429, 131_000, 131_016, 131_048] {
            assert!(matches!(verdict(passing, "", 1), Verdict::Retry(..)), "{passing}");
        }
        for mended in [190, 368, 131_031, 131_042] {
            assert!(matches!(verdict(mended, "", 1), Verdict::Barred(_, why) if why.contains(&mended.to_string())));
        }
        for lasting in [131_026, 131_030, 131_051, 131_062, 132_001, 999_999] {
            let Verdict::Never(_, why) = verdict(lasting, "because", 1) else { panic!("{lasting}") };
            assert!(why.contains(&lasting.to_string()), "{why}");
        }
        assert_eq!(verdict(WINDOW_CLOSED, "", 1), Verdict::WindowClosed);
    }
}
