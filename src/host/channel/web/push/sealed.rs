//! What a push service demands: a signature that says which daemon pushes (VAPID, RFC 8292), and a text that only the browser
//! can read (RFC 8291 with the coding `aes128gcm` of RFC 8188). It knows nothing of asks and calls nobody.
//!
//! `ring` is there for TLS already. `web-push-native` would bring 50 crates more, so it judges this module in the tests.

use askd_core::Time;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Where a browser is reached, as its `PushSubscription.toJSON()` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Subscription {
    pub(super) endpoint: String,
    keys: BrowserKeys,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BrowserKeys {
    p256dh: String,
    auth: String,
}

/// The length of the header of a text: salt, size of a record, length of a key, the key.
const HEADER: usize = 16 + 4 + 1 + 65;
/// The size of the only record; push services take no more.
const RECORD: u32 = 4096;

impl Subscription {
    /// The text, for this browser alone. Fails if it gave no usable keys.
    pub(super) fn seal(&self, text: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let bytes = |text: &str| BASE64.decode(text.trim_end_matches('=')).map_err(|_| Unspecified);
        let (public, auth) = (bytes(&self.keys.p256dh)?, bytes(&self.keys.auth)?);
        let random = SystemRandom::new();
        let own = EphemeralPrivateKey::generate(&ECDH_P256, &random)?;
        let own_public = own.compute_public_key()?;
        let mut salt = [0; 16];
        random.fill(&mut salt)?;
        let secret: [u8; 32] = agree_ephemeral(own, &UnparsedPublicKey::new(&ECDH_P256, &public), |shared| {
            derive(&auth, shared, &[b"WebPush: info\0", &public, own_public.as_ref()])
        })??;
        let key: [u8; 16] = derive(&salt, &secret, &[b"Content-Encoding: aes128gcm\0"])?;
        let nonce: [u8; 12] = derive(&salt, &secret, &[b"Content-Encoding: nonce\0"])?;
        // The mark of the last record.
        let mut record = [text, &[2]].concat();
        LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key)?).seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::empty(),
            &mut record,
        )?;
        let mut sealed = Vec::with_capacity(HEADER + record.len());
        sealed.extend(salt);
        sealed.extend(RECORD.to_be_bytes());
        sealed.push(65);
        sealed.extend(own_public.as_ref());
        sealed.extend(record);
        Ok(sealed)
    }
}

/// So many bytes from a secret.
fn derive<const N: usize>(salt: &[u8], secret: &[u8], info: &[&[u8]]) -> Result<[u8; N], Unspecified> {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut derived = [0; N];
    Salt::new(HKDF_SHA256, salt).extract(secret).expand(info, Length(N))?.fill(&mut derived)?;
    Ok(derived)
}

/// The key that says which daemon pushes.
#[derive(Debug)]
pub(super) struct Vapid {
    pair: EcdsaKeyPair,
    /// As browsers and push services take it.
    pub(super) public: String,
}

impl Vapid {
    /// A new key, as it is kept.
    pub(super) fn make() -> Result<String, Unspecified> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())?;
        Ok(BASE64.encode(document.as_ref()))
    }

    /// The key that was kept.
    pub(super) fn of(kept: &str) -> Option<Self> {
        let document = BASE64.decode(kept).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &document, &SystemRandom::new()).ok()?;
        let public = BASE64.encode(pair.public_key().as_ref());
        Some(Self { pair, public })
    }

    /// The header `Authorization` for a push service. `contact`: whom its operator can turn to.
    pub(super) fn authorization(
        &self,
        service: &str,
        contact: Option<&str>,
        until: Time,
    ) -> Result<String, Unspecified> {
        let mut claims = json!({"aud": service, "exp": until.as_millis() / 1000});
        if let Some(contact) = contact {
            claims["sub"] = json!(contact);
        }
        let [head, claims] =
            [r#"{"typ":"JWT","alg":"ES256"}"#.to_owned(), claims.to_string()].map(|it| BASE64.encode(it));
        let signature = self.pair.sign(&SystemRandom::new(), format!("{head}.{claims}").as_bytes())?;
        Ok(format!("vapid t={head}.{claims}.{}, k={}", BASE64.encode(signature), self.public))
    }
}
