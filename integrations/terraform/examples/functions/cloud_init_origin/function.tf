variable "credential" {
  type      = string
  ephemeral = true
}

# User data for a machine with a web server, which serves a socket.
locals {
  user_data = provider::sallyport::cloud_init_origin({
    api = "https://api.example.com"
    services = [{
      socket_id         = "wandering-shape-7752"
      tunnel_id         = "6d1f6e62-2d21-4b1a-b5c8-6b9f5d4b0c11"
      tunnel_credential = var.credential
      port              = 80
    }]
    apt = {
      url = "https://packages.example.com/apt"
      key = "-----BEGIN PGP PUBLIC KEY BLOCK----- ..."
    }
    packages = ["nginx"]
    files    = [{ path = "/var/www/html/index.html", content = "<h1>Hello</h1>", permissions = "0644" }]
  })
}
