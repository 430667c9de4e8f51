"""Uses the SDK of a vendor on a server that plays `sdk_script`.

usage: sdks.py API BASE_URL KEY

API is `messages`, `chat` or `responses`. Ends with an exception when something is not as it is
with the vendor, else with the line `fine`.
"""

import json
import sys
import uuid

TEXT = "Grüße: it is \"done\"."
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def main():
    api, base_url, key = sys.argv[1:]
    client = {"messages": Messages, "chat": Chat, "responses": Responses}[api](base_url, key)
    for stream in (False, True):
        assert client.ask("say it", stream) == (TEXT, client.usage), "an answer"
        assert client.ask("fail once", stream)[0] == TEXT, "an answer after a retry"
        call_id, name, arguments = client.ask_for_tool(stream)
        assert (name, arguments) == ("bash", {"command": "echo 'hi there'"}), "a tool"
        assert client.answer_tool(call_id, name, arguments, "hi there\n", stream) == "hi there", "a result"
        refused(client, "be refused", stream)
    broken(client, "break off")
    broken(client, "fail in the middle")
    wrong_key(type(client)(base_url, "not-" + key))
    print("fine")


def refused(client, what, stream):
    try:
        client.ask(what, stream)
    except client.sdk.BadRequestError as error:
        assert "this was too much" in str(error), error
        return
    raise AssertionError(what)


def broken(client, what):
    try:
        answer = client.ask(what, True)
    except Exception as error:
        assert not isinstance(error, (AssertionError, AttributeError, TypeError)), error
        return
    raise AssertionError(f"{what}: taken for an answer: {answer}")


def wrong_key(client):
    try:
        client.ask("say it", False)
    except client.sdk.AuthenticationError:
        return
    raise AssertionError("a wrong key")


def fresh(what):
    """The server tells requests apart by this."""
    return f"{what} ({uuid.uuid4()})"


class Messages:
    usage = (11, 5, 3, 7)

    def __init__(self, base_url, key):
        import anthropic

        self.sdk = anthropic
        self.client = anthropic.Anthropic(base_url=base_url, api_key=key, auth_token=None, timeout=60)

    def create(self, stream, messages, **more):
        request = {"model": "m1", "max_tokens": 500, "messages": messages, **more}
        if not stream:
            return self.client.messages.create(**request)
        with self.client.messages.stream(**request) as events:
            pieces = "".join(events.text_stream)
            message = events.get_final_message()
        assert pieces == "".join(block.text for block in message.content if block.type == "text")
        return message

    def ask(self, what, stream):
        message = self.create(stream, [{"role": "user", "content": fresh(what)}])
        assert message.stop_reason == "end_turn", message
        usage = message.usage
        counts = (
            usage.input_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
            usage.output_tokens,
        )
        return message.content[0].text, counts

    def ask_for_tool(self, stream):
        self.messages = [{"role": "user", "content": fresh("use the tool")}]
        self.tools = [{"name": "bash", "description": "a shell", "input_schema": TOOL}]
        message = self.create(stream, self.messages, tools=self.tools)
        assert message.stop_reason == "tool_use", message
        self.messages.append({"role": "assistant", "content": message.content})
        call = message.content[-1]
        return call.id, call.name, call.input

    def answer_tool(self, call_id, name, arguments, result, stream):
        block = {"type": "tool_result", "tool_use_id": call_id, "content": result}
        self.messages.append({"role": "user", "content": [block]})
        return self.create(stream, self.messages, tools=self.tools).content[0].text.strip()


class Chat:
    usage = (19, 5, 7)

    def __init__(self, base_url, key):
        import openai

        self.sdk = openai
        self.client = openai.OpenAI(base_url=base_url, api_key=key, timeout=60)

    def create(self, stream, messages, **more):
        request = {"model": "m1", "messages": messages, **more}
        if not stream:
            return self.client.chat.completions.create(**request)
        with self.client.chat.completions.stream(stream_options={"include_usage": True}, **request) as events:
            for _ in events:
                pass
            return events.get_final_completion()

    def ask(self, what, stream):
        completion = self.create(stream, [{"role": "user", "content": fresh(what)}])
        assert completion.choices[0].finish_reason == "stop", completion
        usage = completion.usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        counts = (usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens)
        return completion.choices[0].message.content, counts

    def ask_for_tool(self, stream):
        self.messages = [{"role": "user", "content": fresh("use the tool")}]
        self.tools = [{"type": "function", "function": {"name": "bash", "parameters": TOOL}}]
        choice = self.create(stream, self.messages, tools=self.tools).choices[0]
        assert choice.finish_reason == "tool_calls", choice
        (call,) = choice.message.tool_calls
        return call.id, call.function.name, json.loads(call.function.arguments)

    def answer_tool(self, call_id, name, arguments, result, stream):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": call_id, "type": "function", "function": function}
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
        completion = self.create(stream, self.messages, tools=self.tools)
        return completion.choices[0].message.content.strip()


class Responses:
    usage = (19, 5, 7)

    def __init__(self, base_url, key):
        import openai

        self.sdk = openai
        self.client = openai.OpenAI(base_url=base_url, api_key=key, timeout=60)

    def create(self, stream, items, **more):
        request = {"model": "m1", "input": items, "store": False, **more}
        if not stream:
            return self.client.responses.create(**request)
        with self.client.responses.stream(**request) as events:
            for _ in events:
                pass
            return events.get_final_response()

    def ask(self, what, stream):
        response = self.create(stream, [{"role": "user", "content": fresh(what)}])
        assert response.status == "completed", response
        usage = response.usage
        counts = (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens)
        return response.output_text, counts

    def ask_for_tool(self, stream):
        self.items = [{"role": "user", "content": fresh("use the tool")}]
        self.tools = [{"type": "function", "name": "bash", "parameters": TOOL, "strict": False}]
        response = self.create(stream, self.items, tools=self.tools)
        (call,) = [item for item in response.output if item.type == "function_call"]
        return call.call_id, call.name, json.loads(call.arguments)

    def answer_tool(self, call_id, name, arguments, result, stream):
        call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}
        self.items.append(call)
        self.items.append({"type": "function_call_output", "call_id": call_id, "output": result})
        return self.create(stream, self.items, tools=self.tools).output_text.strip()


main()
