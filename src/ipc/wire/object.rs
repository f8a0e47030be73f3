//! JSON objects. Derived `Deserialize` also takes an array in place of an object and reads its entries by position. The
//! meaning of such an array would change with the order of our fields, so this module refuses it.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A `T` that is written as an object.
#[derive(Debug, Clone, Copy, Default)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// For `deserialize_with`: a list of objects, which may be `null` or missing.
pub fn objects<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let list: Option<Vec<Object<T>>> = Option::deserialize(deserializer)?;
    Ok(list.unwrap_or_default().into_iter().map(|Object(entry)| entry).collect())
}
