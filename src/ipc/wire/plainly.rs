//! What a reader of JSON says of a value of the wrong type, in the words of JSON: agents and their models read it.

/// `invalid type: string "1h", expected i64` as `must be an integer, not the string "1h"`. Other texts stay as they are.
pub fn plainly(why: &str) -> String {
    let Some((given, wanted)) = why.strip_prefix("invalid type: ").and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return why.to_owned();
    };
    let (wanted, place) = wanted.split_at(wanted.rfind(" at line ").unwrap_or(wanted.len()));
    let wanted = match wanted {
        "i64" | "u64" | "u32" | "u8" => "an integer",
        "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        _ if wanted.starts_with("struct ") => "an object",
        _ => wanted,
    };
    let value = |kind: &str| given.strip_prefix(kind).map(|value| value.trim_matches('`').to_owned());
    let given = match given {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        _ => ["integer ", "floating point ", "boolean "]
            .into_iter()
            .find_map(value)
            .or_else(|| value("string ").map(|text| format!("the string {text}")))
            .unwrap_or_else(|| given.to_owned()),
    };
    format!("must be {wanted}, not {given}{place}")
}
