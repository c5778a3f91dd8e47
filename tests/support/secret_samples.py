"""Secrets of every known kind, none of them real, as they turn up in logs."""

from __future__ import annotations

import json

# Every secret is put together here, so that no file of this repository holds the shape of one.
LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fG"
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
HF = "hf_" + LETTERS + "xY"
GITHUB = "ghp_" + LETTERS + "1234"
JWT = "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0." + LETTERS

SECRETS = {
    "hugging face token": f"HF_TOKEN={HF}",
    "hugging face token in a git address": f"fatal: unable to access 'https://me:{HF}@huggingface.co/me/model/'",
    "hugging face token as the user of an address": f"https://{HF}@huggingface.co/me/model",
    "kaggle.json": f'{{"username":"me","key":"{HEX}"}}',
    "kaggle.json inside a JSON string": json.dumps({"text": f'{{"username":"me","key":"{HEX}"}}'}),
    "kaggle key in the environment": f"os.environ['KAGGLE_KEY'] = '{HEX}'",
    "kaggle token in a traceback": '  File "a.py", line 3\n    login("KG' + f'AT_{HEX}")\nValueError: bad',
    "wandb key in the environment": f"export WANDB_API_KEY={HEX}01234567",
    "wandb login": f"wandb login {HEX}01234567",
    "wandb key in netrc": f"machine api.wandb.ai\n  login user\n  password {HEX}01234567",
    "openai key": "openai.api_key = 's" + f"k-{LETTERS}{LETTERS[:16]}'",
    "openai project key": "s" + f"k-proj-{LETTERS}_{LETTERS}",
    "anthropic key": "s" + f"k-ant-api03-{LETTERS}-AA",
    "github token": f"remote: https://github.com\n{GITHUB}",
    "github token in an address": f"git clone https://x-access-token:{GITHUB}@github.com/a/b.git",
    "fine-grained github token": f"github_pat_{LETTERS[:22]}_{LETTERS}",
    "gitlab token": f"glp{'at'}-{LETTERS[:20]}",
    "aws key id": "AKI" + "AIOSFODNN7EXAMPL2",
    "aws secret key": f"aws_secret_access_key = {LETTERS}/abcd+12",
    "google api key": "AIz" + f"a{LETTERS}abc",
    "google service account": '"private_key": "-----BEGIN ' + 'PRIVATE KEY-----\\nMIIE\\n"',
    "slack token": "xox" + "b-123456789012-123456789012-abcdefghijkl",
    "slack webhook": "https://hooks.slack.com/services/T00000000/B00000000/" + LETTERS[:24],
    "private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "netrc": "machine example.org login me password correct-horse",
    "password in an address": "postgres://admin:s3cretpw@db.internal:5432/runs",
    "bearer token": f"Authorization: Bearer {LETTERS}",
    "basic authorization": '{"Authorization": "Basic bWU6c2VjcmV0cGFzcw=="}',
    "json web token": f"cookie={JWT}",
    "password in a configuration": 'password: "hunter2hunter2"',
    "key of a client": f"client_secret={LETTERS}",
    "stripe key": "stripe.api_key = 's" + f"k_live_{LETTERS}'",
    "stripe restricted key": "r" + f"k_live_{LETTERS}",
    "npm token": "//registry.example/:_authToken=n" + f"pm_{LETTERS}abcd",
    "azure storage": "DefaultEndpointsProtocol=https;AccountName=a;Account" + f"Key={(LETTERS * 3)[:86]}==;",
    "telegram bot token": "bot 1234567" + f"890:AA{LETTERS}x",
    "discord bot token": 'DISCORD_TOKEN="M' + f'{LETTERS[:24]}.Gabcde.{LETTERS}"',
    "discord webhook": "https://discord.com/api/web" + f"hooks/123456789012345678/{LETTERS}{LETTERS}abcd",
    "replicate token": "r" + f"8_{LETTERS}abcde",
    "groq key": "gs" + f"k_{LETTERS}{LETTERS[:20]}",
    "modal token": "modal token set --token-id a" + f"k-{LETTERS[:22]}",
    "modal token secret": "--token-secret a" + f"s-{LETTERS[:22]}",
    "runpod key": "rp" + f"a_{LETTERS}ABCDEFGH",
    "xai key": "xa" + f"i-{LETTERS}{LETTERS}",
    "perplexity key": "ppl" + f"x-{LETTERS}{LETTERS[:16]}",
    "langsmith key": "lsv" + f"2_pt_{HEX}_{HEX[:10]}",
    "digitalocean token": "dop" + f"_v1_{HEX}{HEX}",
    "databricks token": "dap" + f"i{HEX}",
    "sendgrid key": "S" + f"G.{LETTERS[:22]}.{LETTERS}{LETTERS[:11]}",
    "docker token": "dckr" + f"_pat_{LETTERS[:27]}",
    "temporary aws key id": "ASI" + "AIOSFODNN7ABCDEFG",
    "google client secret": "GOC" + f"SPX-{LETTERS[:28]}",
    "google storage key": "GOO" + f"G1E{(LETTERS * 2)[:55]}",
    "mailgun key": "mailgun: ke" + f"y-{HEX}",
    "fireworks key": "f" + f"w_{LETTERS[:24]}",
    "ngrok token": "ngrok config add-auth" + f"token {LETTERS[:27]}_{LETTERS[:21]}",
    "netrc in a notebook": json.dumps(["machine api.wandb.ai\n", "  login user\n", f"  password {HEX}01234567\n"]),
    "netrc in comments": f"# machine api.wandb.ai\n#   login user\n#   password {HEX}01234567",
    "token in utf-16": f"HF_TOKEN={HF}".encode("utf-16"),
}
