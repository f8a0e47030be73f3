//! What a refusal of the Cloud API means for a message. Judged by the code in the error envelope, never
//! by the HTTP status: throttling comes as 400 or as 429. Pure.
//!
//! Codes: Meta's error reference (support/error-codes).

use askd_core::Trouble;
use std::time::Duration;

/// What is to be done about a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Certainly not sent; worth another try.
    Again(Option<Duration>),
    /// There was no connection, so it never left. Worth another try.
    Away,
    /// The person has to write first.
    Window,
    /// The template does not have the parameters that were sent.
    Parameters,
    /// No retry will help: the class of the trouble and, for the operator, its reason and its fix.
    Never(Trouble, String),
}

/// The pair limit: wait 4^tries seconds (Meta's overview).
const PAIR: u64 = 131_056;

/// What `code` means; `message` is Meta's.
pub(super) fn verdict(code: u64, message: &str, attempt: u8) -> Verdict {
    let never = |mend: &str| Verdict::Never(trouble(code), format!("WhatsApp refused it ({code}): {mend}"));
    match code {
        PAIR => Verdict::Again(Some(Duration::from_secs(4_u64.saturating_pow(u32::from(attempt.min(4)))))),
        4 | 80_007 | 130_429 => Verdict::Again(Some(Duration::from_secs(4))),
        131_048 => Verdict::Again(Some(Duration::from_secs(64))),
        1 | 2 | 131_000 | 131_016 | 131_057 | 133_004 | 133_016 => Verdict::Again(None),
        131_047 => Verdict::Window,
        132_000 => Verdict::Parameters,
        0 | 10 | 190 | 200..=299 | 131_005 => {
            never("the access token is not valid or may not send; make a new one and set whatsapp.access_token")
        }
        100 => never("the request or the phone_number_id is wrong; check whatsapp.phone_number_id and api_url"),
        368 | 131_031 => never("the account is blocked or locked; see the account's quality page at Meta"),
        130_472 | 131_049 => never("Meta chose not to deliver it; use another route"),
        131_021 => never("the number of the route is the business's own; set another chat"),
        131_026 => never("the person cannot be reached on WhatsApp; check the number of the route"),
        131_030 => never("the number is not in the test number's list of recipients; add it, or use a real number"),
        131_042 => never("there is a payment problem with the account; mend it at Meta"),
        131_051 => never("this kind of message is not supported"),
        131_062 => never("this business-scoped id cannot be written to; set the person's number as chat"),
        132_001 => never("there is no such template in this language; check whatsapp.template and template_language"),
        132_005..=132_016 => never("the template does not fit or is paused; see it in the manager of templates"),
        133_010 => never("the number of the business is not registered; register it at Meta"),
        131_008 | 131_009 => never("the number of the route is not one WhatsApp knows; check chat"),
        _ => never(message),
    }
}

/// The class of a refusal.
pub(super) fn trouble(code: u64) -> Trouble {
    match code {
        131_047 => Trouble::WindowClosed,
        4 | 80_007 | 130_429 | 131_048 | PAIR => Trouble::RateLimited,
        131_008 | 131_009 | 131_021 | 131_026 | 131_030 | 131_062 => Trouble::ChatNotFound,
        1 | 2 | 131_000 | 131_016 | 131_057 | 133_004 | 133_016 => Trouble::Unknown,
        _ => Trouble::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_tried_again_and_what_does_not_says_how_to_mend_it() {
        assert_eq!(verdict(131_056, "", 1), Verdict::Again(Some(Duration::from_secs(4))));
        assert_eq!(verdict(131_056, "", 3), Verdict::Again(Some(Duration::from_secs(64))));
        for passing in [4, 80_007, 130_429, 131_000, 131_016, 131_048] {
            assert!(matches!(verdict(passing, "", 1), Verdict::Again(_)), "{passing}");
        }
        for lasting in [190, 368, 131_026, 131_030, 131_031, 131_051, 131_062, 132_001, 999_999] {
            let Verdict::Never(_, why) = verdict(lasting, "because", 1) else { panic!("{lasting}") };
            assert!(why.contains(&lasting.to_string()), "{why}");
        }
        assert_eq!(verdict(131_047, "", 1), Verdict::Window);
    }
}
