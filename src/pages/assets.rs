//! The stylesheet and the script, which every page loads, with their versions.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

use crate::formats::Asset;
use crate::value::hash_u128;

const STYLESHEET: &str = include_str!("nouns.css");
const SCRIPT: &str = include_str!("nouns.js");

/// The content of a file.
pub fn asset_text(asset: Asset) -> &'static str {
    match asset {
        Asset::Stylesheet => STYLESHEET,
        Asset::Script => SCRIPT,
    }
}

/// A hash of the content: another content has another address.
pub fn asset_version(asset: Asset) -> &'static str {
    static STYLESHEET_VERSION: LazyLock<String> = LazyLock::new(|| version(STYLESHEET));
    static SCRIPT_VERSION: LazyLock<String> = LazyLock::new(|| version(SCRIPT));
    match asset {
        Asset::Stylesheet => &STYLESHEET_VERSION,
        Asset::Script => &SCRIPT_VERSION,
    }
}

fn version(content: &str) -> String {
    let number = hash_u128(Sha256::new().chain_update(content));
    format!("{:016x}", number >> 64)
}

/// The address of a file, with its version.
pub fn asset_address(base_path: &str, asset: Asset) -> String {
    format!("{base_path}/-/assets/{}?v={}", asset.file_name(), asset_version(asset))
}
