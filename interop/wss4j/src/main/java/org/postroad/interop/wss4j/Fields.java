package org.postroad.interop.wss4j;

import java.util.List;
import java.util.Map;

/** The fields of one JSON object, by their types. */
record Fields(Map<String, Object> values) {

    @SuppressWarnings("unchecked")
    static Fields of(Object value) {
        return new Fields((Map<String, Object>) value);
    }

    boolean has(String name) {
        return values.get(name) != null;
    }

    String text(String name) {
        return (String) values.get(name);
    }

    boolean flag(String name) {
        return Boolean.TRUE.equals(values.get(name));
    }

    long number(String name) {
        return (Long) values.get(name);
    }

    Fields object(String name) {
        return of(values.get(name));
    }

    @SuppressWarnings("unchecked")
    List<String> texts(String name) {
        return has(name) ? (List<String>) values.get(name) : List.of();
    }

    List<Fields> objects(String name) {
        return has(name) ? ((List<?>) values.get(name)).stream().map(Fields::of).toList() : List.of();
    }
}
