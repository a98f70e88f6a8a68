//! Ed25519 keys and signatures (RFC 8032), and keys as PEM text (RFC 8410), which OpenSSL makes and reads too.
//!
//! Signing is deterministic: a signature depends on key and content alone. The caller decides which keys to
//! trust.

use std::fmt;

use ed25519_dalek::ed25519::pkcs8::KeypairBytes;
use ed25519_dalek::ed25519::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey};
use ed25519_dalek::{Signature, Signer};
use thiserror::Error;

/// The number of Ed25519.
pub(super) const ED25519: u32 = 1;

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The text contains no private key.
    #[error("it contains no Ed25519 private key in PEM form (-----BEGIN PRIVATE KEY-----)")]
    Private,
    /// A public key where the private one is needed.
    #[error("it contains a public key; signing needs the private key")]
    PublicGiven,
    /// The text contains no public key.
    #[error("it contains no Ed25519 public key in PEM form (-----BEGIN PUBLIC KEY-----)")]
    Public,
    /// A private key where the public one is needed.
    #[error("it contains a private key; checking needs the public key")]
    PrivateGiven,
    /// A key that the library cannot write.
    #[error("the key cannot be written as PEM")]
    Encode,
}

/// A key that signs.
pub struct SigningKey(ed25519_dalek::SigningKey);

impl fmt::Debug for SigningKey {
    /// Shows the public half only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.verifying())
    }
}

impl SigningKey {
    /// The key of 32 secret bytes.
    #[must_use]
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(secret))
    }

    /// The key in a PEM text.
    ///
    /// # Errors
    /// It contains no valid key.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        if let Ok(key) = ed25519_dalek::SigningKey::from_pkcs8_pem(text) {
            return Ok(Self(key));
        }
        let public = ed25519_dalek::VerifyingKey::from_public_key_pem(text).is_ok();
        Err(if public { KeyError::PublicGiven } else { KeyError::Private })
    }

    /// The key as PEM text.
    ///
    /// # Errors
    /// The library cannot write it.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        // Without the public key: every reader of RFC 8410 accepts this form.
        let pair = KeypairBytes { secret_key: self.0.to_bytes(), public_key: None };
        let text = pair.to_pkcs8_pem(LineEnding::LF).map_err(|_| KeyError::Encode)?;
        Ok(text.to_string())
    }

    /// The key that checks the signatures of this one.
    #[must_use]
    pub fn verifying(&self) -> VerifyingKey {
        VerifyingKey(self.0.verifying_key().to_bytes())
    }

    /// The content of the signature section of a file that has `message` before it.
    pub(super) fn section(&self, message: &[u8]) -> Vec<u8> {
        let mut out = ED25519.to_le_bytes().to_vec();
        out.extend_from_slice(self.0.verifying_key().as_bytes());
        out.extend_from_slice(&self.0.sign(message).to_bytes());
        out
    }
}

/// A key that checks signatures: 32 bytes that encode a point of the curve.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VerifyingKey([u8; 32]);

impl VerifyingKey {
    /// The key of 32 bytes, if they encode one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        ed25519_dalek::VerifyingKey::from_bytes(bytes).ok().map(|key| Self(key.to_bytes()))
    }

    /// The key in a PEM text.
    ///
    /// # Errors
    /// It contains no valid key.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        if let Ok(key) = ed25519_dalek::VerifyingKey::from_public_key_pem(text) {
            return Ok(Self(key.to_bytes()));
        }
        let private = ed25519_dalek::SigningKey::from_pkcs8_pem(text).is_ok();
        Err(if private { KeyError::PrivateGiven } else { KeyError::Public })
    }

    /// The key as PEM text.
    ///
    /// # Errors
    /// The library cannot write it.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(&self.0).map_err(|_| KeyError::Encode)?;
        key.to_public_key_pem(LineEnding::LF).map_err(|_| KeyError::Encode)
    }

    /// Whether `signature` is a signature of `message` by this key, by the strict rules, without the freedoms that RFC
    /// 8032 leaves.
    pub(super) fn checks(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let key = ed25519_dalek::VerifyingKey::from_bytes(&self.0);
        key.is_ok_and(|key| key.verify_strict(message, &Signature::from_bytes(signature)).is_ok())
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({self})")
    }
}
