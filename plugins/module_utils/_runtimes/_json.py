import json


class JsonError(ValueError):
    pass


class Json:
    def __init__(self, text):
        self.data = json.loads(text or "{}")
        self._t = text
        self.ch = False

    def set(self, path, value):
        d = self.data
        for k in path[:-1]:
            d = d.setdefault(k, {})
        if d.get(path[-1]) != value:
            d[path[-1]] = value
            self.ch = True

    def delete(self, path):
        d = self.data
        for k in path[:-1]:
            d = d.get(k, {})
        if path[-1] in d:
            del d[path[-1]]
            self.ch = True

    def text(self):
        return json.dumps(self.data) if self.ch else self._t
