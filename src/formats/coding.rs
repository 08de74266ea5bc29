//! Content codings, gzip and zstd (RFC 9110 §8.4.1): negotiation (§12.5.3) and compression.
//!
//! Pure: bytes in, bytes out. Without an `Accept-Encoding` header it does nothing. The header must name zstd.
//! `*` means gzip unless that is refused, because every client that can decode anything can decode gzip.

use std::fmt;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;
use zstd::zstd_safe::CParameter;

use super::accept;

/// Smaller bodies are not compressed: they fit into one packet anyway.
const UNCOMPRESSED_BYTES_MAX: usize = 1024;

/// Higher levels do not make lists of items smaller, and take several times as long.
const GZIP_LEVEL: u32 = 3;
const ZSTD_LEVEL: i32 = 1;
/// The window of streaming responses, small since many may be open at the same time. RFC 8878 §3.1.1.1.2:
/// every decoder supports a window of 2^23 bytes; a whole body uses at most 2^19 at this level.
const ZSTD_STREAM_WINDOW_LOG: u32 = 17;
/// Memory of an encoder for a streaming response, rounded up.
pub const ENCODER_BYTES: usize = 512 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentCoding {
    Zstd,
    Gzip,
}

/// The coding of a response, as negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodingChoice {
    coding: ContentCoding,
    /// The client refuses `identity`, so that small bodies have to be compressed too.
    is_identity_refused: bool,
}

/// Parses all lines of `Accept-Encoding`. `None`: no coding, also if the client accepts nothing that the
/// server can send: a 406 would have a body as well, which the client would refuse too.
pub fn choose<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<CodingChoice> {
    let mut values = values.into_iter().peekable();
    // RFC 9110 §12.5.3: without the header any coding is acceptable.
    values.peek()?;
    let listed = accept::parse_weighted_names(values);
    let weight = |name: &str| {
        let named = listed.iter().filter(|(listed, _)| listed.eq_ignore_ascii_case(name));
        named.map(|(_, weight)| *weight).max()
    };
    let any = weight("*");
    let zstd = weight("zstd");
    // RFC 9110 §8.4.1.3: x-gzip is gzip.
    let gzip = weight("gzip").max(weight("x-gzip"));
    let plain = weight("identity").or(any);
    // The second element of each tuple is our own preference, among codings of equal weight.
    let zstd_place = if zstd.is_some() { 3 } else { 1 };
    let codings = [
        (zstd.or(any).unwrap_or(0), zstd_place, Some(ContentCoding::Zstd)),
        (gzip.or(any).unwrap_or(0), 2, Some(ContentCoding::Gzip)),
        // If it is not listed, identity is accepted, with less preference than any listed coding.
        (plain.unwrap_or(0), 0, None),
    ];
    let is_liked = |liked: &&(u16, u8, Option<ContentCoding>)| liked.0 > 0;
    let best =
        codings.iter().filter(is_liked).max_by_key(|(weight, place, _)| (*weight, *place))?;
    let coding = best.2?;
    Some(CodingChoice { coding, is_identity_refused: plain == Some(0) })
}

impl CodingChoice {
    /// Whether a body of this size is compressed. Depends on nothing else, so that equal bytes are always
    /// sent in the same coding to clients that send the same header.
    pub fn applies_to(self, bytes: usize) -> bool {
        bytes > if self.is_identity_refused { 0 } else { UNCOMPRESSED_BYTES_MAX }
    }

    /// Distinguishes the entity tags of one response in different codings. Depends on the negotiated coding,
    /// not on whether the body was compressed: 304 and 412 are decided before the size is known.
    pub fn tag_number(self) -> u32 {
        u32::from_be_bytes(*match (self.coding, self.is_identity_refused) {
            (ContentCoding::Zstd, false) => b"zstd",
            (ContentCoding::Gzip, false) => b"gzip",
            (ContentCoding::Zstd, true) => b"ZSTD",
            (ContentCoding::Gzip, true) => b"GZIP",
        })
    }

    /// The value of `Content-Encoding`.
    pub fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self.coding {
            ContentCoding::Zstd => "zstd",
            ContentCoding::Gzip => "gzip",
        })
    }

    /// The encoded bytes; `None` when there is no memory for it.
    pub fn encode(self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.coding {
            ContentCoding::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL).ok(),
            ContentCoding::Gzip => {
                let coded = Vec::with_capacity(bytes.len() / 4);
                let mut encoder = GzEncoder::new(coded, Compression::new(GZIP_LEVEL));
                encoder.write_all(bytes).ok()?;
                encoder.finish().ok()
            }
        }
    }

    /// An encoder for a streaming response; `None` when there is no memory for it.
    pub fn encoder(self) -> Option<Encoder> {
        Some(Encoder(match self.coding {
            ContentCoding::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL).ok()?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_STREAM_WINDOW_LOG)).ok()?;
                EncoderKind::Zstd(encoder)
            }
            ContentCoding::Gzip => {
                EncoderKind::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL)))
            }
        }))
    }
}

/// A streaming encoder.
pub struct Encoder(EncoderKind);

enum EncoderKind {
    Zstd(zstd::Encoder<'static, Vec<u8>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// Encodes one chunk and flushes, so that the client can decode everything up to here.
    pub fn push(&mut self, piece: &[u8]) -> Option<Vec<u8>> {
        let coded = match &mut self.0 {
            EncoderKind::Zstd(encoder) => {
                encoder.write_all(piece).and_then(|()| encoder.flush()).ok()?;
                encoder.get_mut()
            }
            EncoderKind::Gzip(encoder) => {
                encoder.write_all(piece).and_then(|()| encoder.flush()).ok()?;
                encoder.get_mut()
            }
        };
        Some(std::mem::take(coded))
    }

    /// The bytes that end the encoding: without them a decoder reports truncation.
    pub fn finish(self) -> Option<Vec<u8>> {
        match self.0 {
            EncoderKind::Zstd(encoder) => encoder.finish().ok(),
            EncoderKind::Gzip(encoder) => encoder.finish().ok(),
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;

    fn chosen(lines: &[&str]) -> String {
        match choose(lines.iter().map(|line| line.as_bytes())) {
            None => "plain".to_owned(),
            Some(choice) => {
                let when = if choice.applies_to(1) { "" } else { " if large" };
                format!("{}{when}", choice.name().to_str().unwrap())
            }
        }
    }

    #[test]
    fn coding_highest_weight_wins_then_our_preference() {
        let cases = [
            // Headers of real clients.
            ("gzip, deflate, br, zstd", "zstd if large"),
            ("gzip, deflate, br", "gzip if large"),
            ("deflate, gzip, br, zstd", "zstd if large"),
            ("gzip,deflate", "gzip if large"),
            ("br", "plain"),
            ("deflate", "plain"),
            ("identity", "plain"),
            ("", "plain"),
            (" , ", "plain"),
            // The examples of RFC 9110 §12.5.3.
            ("compress, gzip", "gzip if large"),
            ("*", "gzip if large"),
            ("compress;q=0.5, gzip;q=1.0", "gzip if large"),
            ("gzip;q=1.0, identity; q=0.5, *;q=0", "gzip if large"),
            // Weights.
            ("gzip;q=0.9, zstd;q=0.8", "gzip if large"),
            ("gzip;q=0.8, zstd;q=0.9", "zstd if large"),
            ("gzip;q=0.001", "gzip if large"),
            ("gzip;q=0", "plain"),
            ("gzip;q=0, zstd;q=0.0", "plain"),
            ("gzip;q=0.5, identity", "plain"),
            ("gzip;q=0.5, identity;q=0.5", "gzip if large"),
            ("gzip;q=0.5, *;q=1", "zstd if large"),
            ("gzip;q=0, *", "zstd if large"),
            ("zstd;q=0, *;q=0.1", "gzip if large"),
            ("gzip;q=0.1, identity;q=0.2, *;q=0.3", "zstd if large"),
            // The client refuses identity.
            ("gzip, identity;q=0", "gzip"),
            ("zstd, *;q=0", "zstd"),
            ("*, identity;q=0", "gzip"),
            ("gzip, *;q=0, identity", "gzip if large"),
            // The client refuses everything.
            ("identity;q=0", "plain"),
            ("*;q=0", "plain"),
            ("br, identity;q=0", "plain"),
            // Names are compared without regard to case; x-gzip is an alias.
            ("GZip", "gzip if large"),
            ("x-gzip", "gzip if large"),
            ("gzip;q=0, x-gzip", "gzip if large"),
            // Malformed elements are skipped.
            ("gzip;q=2, zstd", "zstd if large"),
            ("gzip;q=, zstd;q=0.1", "zstd if large"),
            ("gzip;level=9", "plain"),
            ("gzip zstd", "plain"),
            ("\"gzip\"", "plain"),
            ("gzip;q=0.1234", "plain"),
            ("\tgzip ;\tq=0.5 ,", "gzip if large"),
            ("gzip; Q=0", "plain"),
        ];
        for (sent, expected) in cases {
            assert_eq!(chosen(&[sent]), expected, "{sent}");
        }
        assert_eq!(chosen(&[]), "plain");
        assert_eq!(chosen(&["br", "gzip;q=0.2"]), "gzip if large");
    }

    #[test]
    fn coding_compresses_bodies_over_one_kibibyte() {
        let choice = choose([b"gzip".as_slice()]).unwrap();
        assert!(!choice.applies_to(0) && !choice.applies_to(1024) && choice.applies_to(1025));
        let always = choose([b"gzip, identity;q=0".as_slice()]).unwrap();
        assert!(!always.applies_to(0) && always.applies_to(1));
    }

    #[test]
    fn coding_choices_have_distinct_tag_suffixes() {
        let lines = ["zstd", "gzip", "zstd, *;q=0", "gzip, *;q=0"];
        let marks = lines.map(|line| choose([line.as_bytes()]).unwrap().tag_number());
        for (index, mark) in marks.iter().enumerate() {
            assert!(*mark != 0 && !marks[index + 1..].contains(mark));
        }
    }

    fn decoded(choice: CodingChoice, coded: &[u8]) -> Vec<u8> {
        match choice.coding {
            ContentCoding::Zstd => zstd::stream::decode_all(coded).unwrap(),
            ContentCoding::Gzip => {
                let mut bytes = Vec::new();
                GzDecoder::new(coded).read_to_end(&mut bytes).unwrap();
                bytes
            }
        }
    }

    /// Decodes the first bytes of an unfinished encoding.
    fn so_far(choice: CodingChoice, coded: &[u8], bytes: usize) -> Vec<u8> {
        let mut plain = vec![0; bytes];
        match choice.coding {
            ContentCoding::Zstd => {
                zstd::Decoder::new(coded).unwrap().read_exact(&mut plain).unwrap();
            }
            ContentCoding::Gzip => GzDecoder::new(coded).read_exact(&mut plain).unwrap(),
        }
        plain
    }

    #[test]
    fn coding_unfinished_output_is_reported_as_truncated() {
        for line in ["zstd", "gzip"] {
            let choice = choose([line.as_bytes()]).unwrap();
            let mut encoder = choice.encoder().unwrap();
            let coded = encoder.push(b"something").unwrap();
            let mut plain = Vec::new();
            let read = match choice.coding {
                ContentCoding::Zstd => zstd::Decoder::new(&*coded).unwrap().read_to_end(&mut plain),
                ContentCoding::Gzip => GzDecoder::new(&*coded).read_to_end(&mut plain),
            };
            assert!(read.is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn coding_output_decodes_to_the_input(bytes: Vec<u8>, times in 1_usize..200) {
            let bytes = bytes.repeat(times);
            for line in ["zstd", "gzip"] {
                let choice = choose([line.as_bytes()]).unwrap();
                let coded = choice.encode(&bytes).unwrap();
                prop_assert_eq!(&decoded(choice, &coded), &bytes);
                prop_assert_eq!(choice.encode(&bytes).unwrap(), coded);
            }
        }

        /// Each chunk can be decoded immediately, and the end is explicit.
        #[test]
        fn coding_chunks_can_be_decoded_one_by_one(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..500), 0..8)) {
            for line in ["zstd", "gzip"] {
                let choice = choose([line.as_bytes()]).unwrap();
                let mut encoder = choice.encoder().unwrap();
                let (mut plain, mut coded) = (Vec::new(), Vec::new());
                for piece in &pieces {
                    plain.extend_from_slice(piece);
                    coded.extend_from_slice(&encoder.push(piece).unwrap());
                    prop_assert_eq!(&so_far(choice, &coded, plain.len()), &plain);
                }
                coded.extend_from_slice(&encoder.finish().unwrap());
                prop_assert_eq!(&decoded(choice, &coded), &plain);
            }
        }

        #[test]
        fn coding_arbitrary_header_never_panics(bytes: Vec<u8>, line in r#"([*;,="\\ q.01]|gzip|zstd|identity|;q=){0,30}"#) {
            let _ = choose([bytes.as_slice(), line.as_bytes()]);
        }
    }
}
