package org.postroad.interop.cxf;

import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** What a control request says. */
final class Options {
    private final Map<?, ?> values;

    Options(Object values) {
        this.values = (Map<?, ?>) values;
    }

    String text(String name) {
        Object value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("Missing value: " + name + ".");
        }
        return value.toString();
    }

    String text(String name, String otherwise) {
        Object value = values.get(name);
        return value == null ? otherwise : value.toString();
    }

    long number(String name, long otherwise) {
        Object value = values.get(name);
        return value == null ? otherwise : ((Number) value).longValue();
    }

    boolean flag(String name, boolean otherwise) {
        Object value = values.get(name);
        return value == null ? otherwise : (Boolean) value;
    }

    Options options(String name) {
        Object value = values.get(name);
        return value == null ? null : new Options(value);
    }

    List<Options> list(String name) {
        Object value = values.get(name);
        return value == null ? List.of() : ((List<?>) value).stream().map(Options::new).collect(Collectors.toList());
    }
}
